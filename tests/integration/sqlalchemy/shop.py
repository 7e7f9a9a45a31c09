"""An ordinary application with SQLAlchemy: eleven tables, as a shop has them, without a word about lanes."""

import enum
import uuid
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    """All tables."""

    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Status(enum.Enum):
    """What becomes of a purchase."""

    OPEN = "open"
    PAID = "paid"
    SENT = "sent"


class Method(enum.StrEnum):
    """How a purchase is paid."""

    CARD = "card"
    INVOICE = "invoice"


product_category = sa.Table(
    "product_category",
    Base.metadata,
    sa.Column("product_id", sa.ForeignKey("product.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("category_id", sa.ForeignKey("category.id"), primary_key=True),
)


class Category(Base):
    """A tree of categories."""

    __tablename__ = "category"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(40), unique=True)
    parent_id: Mapped[int | None] = mapped_column(sa.ForeignKey("category.id"))
    children: Mapped[list["Category"]] = relationship(order_by="Category.name")


class Product(Base):
    """Something to buy."""

    __tablename__ = "product"
    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    code: Mapped[uuid.UUID] = mapped_column(unique=True)
    name: Mapped[str] = mapped_column(sa.Text)
    price: Mapped[Decimal] = mapped_column(sa.Numeric(10, 2))
    released: Mapped[date | None]
    labels: Mapped[list[str]] = mapped_column(ARRAY(sa.String), default=list)
    sizes: Mapped[list[int]] = mapped_column(ARRAY(sa.Integer), server_default=sa.text("'{}'"))
    attributes: Mapped[dict[str, Any]] = mapped_column(JSONB, default=dict)
    weight: Mapped[float | None] = mapped_column(sa.Double)
    picture: Mapped[bytes | None]
    is_active: Mapped[bool] = mapped_column(default=True)
    categories: Mapped[list[Category]] = relationship(secondary=product_category, order_by=Category.name)
    __table_args__ = (
        sa.CheckConstraint("price >= 0", name="price"),
        sa.Index("ix_product_active", "name", postgresql_where=sa.text("is_active")),
    )


class Customer(Base):
    """Who buys."""

    __tablename__ = "customer"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(sa.String(100), unique=True)
    name: Mapped[str]
    born: Mapped[date | None]
    preferences: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON)
    since: Mapped[datetime] = mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
    visits: Mapped[int] = mapped_column(server_default="0")
    addresses: Mapped[list["Address"]] = relationship(cascade="all, delete-orphan", order_by="Address.id")
    purchases: Mapped[list["Purchase"]] = relationship(back_populates="customer", order_by="Purchase.number")


class Address(Base):
    """Where a customer lives."""

    __tablename__ = "address"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(sa.ForeignKey("customer.id", ondelete="CASCADE"), index=True)
    lines: Mapped[list[str]] = mapped_column(ARRAY(sa.Text))
    town: Mapped[str] = mapped_column(sa.String(60))


class Purchase(Base):
    """What a customer has bought."""

    __tablename__ = "purchase"
    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    number: Mapped[str] = mapped_column(sa.String(20), unique=True)
    customer_id: Mapped[int] = mapped_column(sa.ForeignKey("customer.id"), index=True)
    status: Mapped[Status] = mapped_column(
        sa.Enum(Status, native_enum=False, create_constraint=True, name="status"), default=Status.OPEN
    )
    at: Mapped[datetime] = mapped_column(sa.DateTime(timezone=True))
    deliver_on: Mapped[date | None]
    patience: Mapped[timedelta | None]
    customer: Mapped[Customer] = relationship(back_populates="purchases")
    lines: Mapped[list["Line"]] = relationship(cascade="all, delete-orphan", order_by="Line.place")
    payments: Mapped[list["Payment"]] = relationship(cascade="all, delete-orphan")


class Line(Base):
    """One product of a purchase."""

    __tablename__ = "line"
    purchase_id: Mapped[int] = mapped_column(sa.ForeignKey("purchase.id", ondelete="CASCADE"), primary_key=True)
    place: Mapped[int] = mapped_column(sa.SmallInteger, primary_key=True)
    product_id: Mapped[int] = mapped_column(sa.ForeignKey("product.id"))
    quantity: Mapped[int]
    price: Mapped[Decimal] = mapped_column(sa.Numeric(10, 2))
    product: Mapped[Product] = relationship()
    __table_args__ = (sa.CheckConstraint("quantity > 0", name="quantity"),)


class Payment(Base):
    """Money that has come in."""

    __tablename__ = "payment"
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    purchase_id: Mapped[int] = mapped_column(sa.ForeignKey("purchase.id"))
    method: Mapped[Method] = mapped_column(sa.Enum(Method, native_enum=False, create_constraint=False, length=10))
    amount: Mapped[Decimal] = mapped_column(sa.Numeric(12, 2))
    received: Mapped[datetime]


class Review(Base):
    """What a customer says about a product."""

    __tablename__ = "review"
    id: Mapped[int] = mapped_column(primary_key=True)
    product_id: Mapped[int] = mapped_column(sa.ForeignKey("product.id"))
    customer_id: Mapped[int] = mapped_column(sa.ForeignKey("customer.id"))
    stars: Mapped[int] = mapped_column(sa.SmallInteger)
    text: Mapped[str] = mapped_column(sa.Text, server_default="")
    __table_args__ = (
        sa.UniqueConstraint("product_id", "customer_id", name="uq_review_once"),
        sa.CheckConstraint("stars BETWEEN 1 AND 5", name="stars"),
    )


class Stock(Base):
    """How many of a product there are."""

    __tablename__ = "stock"
    product_id: Mapped[int] = mapped_column(sa.ForeignKey("product.id"), primary_key=True)
    place: Mapped[str] = mapped_column(sa.String(10), primary_key=True)
    amount: Mapped[int] = mapped_column(sa.BigInteger, default=0)


class Visit(Base):
    """A page that was looked at: written in bulk."""

    __tablename__ = "visit"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int | None] = mapped_column(sa.ForeignKey("customer.id", ondelete="SET NULL"))
    page: Mapped[str] = mapped_column(sa.String(200))
    day: Mapped[date] = mapped_column(index=True)
    seconds: Mapped[float] = mapped_column(sa.Double)

"""Customers."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "customer",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("email", sa.String(length=60), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("born", sa.Date(), nullable=True),
        sa.Column("preferences", sa.JSON(), nullable=True),
        sa.Column("since", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_customer")),
        sa.UniqueConstraint("email", name=op.f("uq_customer_email")),
    )
    op.create_table(
        "address",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("customer_id", sa.Integer(), nullable=False),
        sa.Column("lines", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("city", sa.String(length=60), nullable=False),
        sa.ForeignKeyConstraint(
            ["customer_id"], ["customer.id"], name=op.f("fk_address_customer_id_customer"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_address")),
    )
    op.create_index(op.f("ix_address_customer_id"), "address", ["customer_id"], unique=False)
    op.create_table(
        "review",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("product_id", sa.BigInteger(), nullable=False),
        sa.Column("customer_id", sa.Integer(), nullable=False),
        sa.Column("stars", sa.SmallInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.CheckConstraint("stars BETWEEN 1 AND 5", name=op.f("ck_review_stars")),
        sa.ForeignKeyConstraint(["customer_id"], ["customer.id"], name=op.f("fk_review_customer_id_customer")),
        sa.ForeignKeyConstraint(["product_id"], ["product.id"], name=op.f("fk_review_product_id_product")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_review")),
    )
    op.create_table(
        "visit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("customer_id", sa.Integer(), nullable=True),
        sa.Column("page", sa.String(length=200), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["customer_id"], ["customer.id"], name=op.f("fk_visit_customer_id_customer"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_visit")),
    )
    op.create_index(op.f("ix_visit_day"), "visit", ["day"], unique=False)


def downgrade() -> None:
    op.drop_table("visit")
    op.drop_table("review")
    op.drop_table("address")
    op.drop_table("customer")

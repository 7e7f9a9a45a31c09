"""Purchases."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "purchase",
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.String(length=20), nullable=False),
        sa.Column("customer_id", sa.Integer(), nullable=False),
        sa.Column(
            "status",
            sa.Enum("OPEN", "PAID", "SENT", name="status", native_enum=False, create_constraint=True),
            nullable=False,
        ),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deliver_on", sa.Date(), nullable=True),
        sa.Column("patience", sa.Interval(), nullable=True),
        sa.ForeignKeyConstraint(["customer_id"], ["customer.id"], name=op.f("fk_purchase_customer_id_customer")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_purchase")),
        sa.UniqueConstraint("number", name=op.f("uq_purchase_number")),
    )
    op.create_index(op.f("ix_purchase_customer_id"), "purchase", ["customer_id"], unique=False)
    op.create_table(
        "line",
        sa.Column("purchase_id", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.SmallInteger(), nullable=False),
        sa.Column("product_id", sa.BigInteger(), nullable=False),
        sa.Column("quantity", sa.Integer(), nullable=False),
        sa.Column("price", sa.Numeric(precision=10, scale=2), nullable=False),
        sa.CheckConstraint("quantity > 0", name=op.f("ck_line_quantity")),
        sa.ForeignKeyConstraint(["product_id"], ["product.id"], name=op.f("fk_line_product_id_product")),
        sa.ForeignKeyConstraint(
            ["purchase_id"], ["purchase.id"], name=op.f("fk_line_purchase_id_purchase"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("purchase_id", "place", name=op.f("pk_line")),
    )
    op.create_table(
        "payment",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("purchase_id", sa.BigInteger(), nullable=False),
        sa.Column("method", sa.Enum("CARD", "INVOICE", name="method", native_enum=False, length=10), nullable=False),
        sa.Column("amount", sa.Numeric(precision=12, scale=2), nullable=False),
        sa.Column("received", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["purchase_id"], ["purchase.id"], name=op.f("fk_payment_purchase_id_purchase")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_payment")),
    )


def downgrade() -> None:
    op.drop_table("payment")
    op.drop_table("line")
    op.drop_table("purchase")

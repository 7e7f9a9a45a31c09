"""The catalogue."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "category",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("parent_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["parent_id"], ["category.id"], name=op.f("fk_category_parent_id_category")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_category")),
        sa.UniqueConstraint("name", name=op.f("uq_category_name")),
    )
    op.create_table(
        "product",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("code", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("price", sa.Numeric(precision=10, scale=2), nullable=False),
        sa.Column("released", sa.Date(), nullable=True),
        sa.Column("labels", postgresql.ARRAY(sa.String()), nullable=False),
        sa.Column("sizes", postgresql.ARRAY(sa.Integer()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("attributes", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=True),
        sa.Column("old_name", sa.Text(), nullable=True),
        sa.Column("picture", sa.LargeBinary(), nullable=True),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_product")),
        sa.UniqueConstraint("code", name=op.f("uq_product_code")),
    )
    op.create_index("ix_product_active", "product", ["name"], unique=False, postgresql_where=sa.text("is_active"))
    op.create_table(
        "product_category",
        sa.Column("product_id", sa.BigInteger(), nullable=False),
        sa.Column("category_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["category_id"], ["category.id"], name=op.f("fk_product_category_category_id_category")
        ),
        sa.ForeignKeyConstraint(
            ["product_id"], ["product.id"], name=op.f("fk_product_category_product_id_product"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("product_id", "category_id", name=op.f("pk_product_category")),
    )
    op.create_table(
        "stock",
        sa.Column("product_id", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.String(length=10), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["product_id"], ["product.id"], name=op.f("fk_stock_product_id_product")),
        sa.PrimaryKeyConstraint("product_id", "place", name=op.f("pk_stock")),
    )


def downgrade() -> None:
    op.drop_table("stock")
    op.drop_table("product_category")
    op.drop_table("product")
    op.drop_table("category")

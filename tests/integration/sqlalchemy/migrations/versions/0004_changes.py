"""What changed later: columns, types, names, constraints, and rows."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("customer", sa.Column("visits", sa.Integer(), server_default="0", nullable=False))
    op.alter_column("customer", "email", type_=sa.String(100), existing_type=sa.String(60))
    op.alter_column("address", "city", new_column_name="town")
    op.alter_column("product", "weight", type_=sa.Double(), existing_type=sa.Integer())
    op.drop_column("product", "old_name")
    op.create_check_constraint(op.f("ck_product_price"), "product", "price >= 0")
    op.create_unique_constraint("uq_review_once", "review", ["product_id", "customer_id"])
    op.execute("UPDATE review SET text = '' WHERE text IS NULL")
    op.alter_column("review", "text", nullable=False, server_default="", existing_type=sa.Text())
    op.execute("INSERT INTO category (name) VALUES ('books'), ('games') ON CONFLICT (name) DO NOTHING")


def downgrade() -> None:
    op.alter_column("review", "text", nullable=True, server_default=None, existing_type=sa.Text())
    op.drop_constraint("uq_review_once", "review", type_="unique")
    op.drop_constraint(op.f("ck_product_price"), "product", type_="check")
    op.add_column("product", sa.Column("old_name", sa.Text(), nullable=True))
    op.alter_column("product", "weight", type_=sa.Integer(), existing_type=sa.Double())
    op.alter_column("address", "town", new_column_name="city")
    op.alter_column("customer", "email", type_=sa.String(60), existing_type=sa.String(100))
    op.drop_column("customer", "visits")

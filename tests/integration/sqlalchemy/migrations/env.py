"""Alembic's environment: it migrates the connection that it is given."""

from typing import cast

import sqlalchemy as sa
from alembic import context

from tests.integration.sqlalchemy.shop import Base

connection = cast("sa.Connection", context.config.attributes["connection"])
context.configure(connection=connection, target_metadata=Base.metadata)
with context.begin_transaction():
    context.run_migrations()

"""What every test of this folder has: a server, and a schema of its own."""

from tests.integration.postgres.fixtures import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]

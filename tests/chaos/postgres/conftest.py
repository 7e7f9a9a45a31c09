"""What the tests without processes of their own need: a server, and a schema of its own for each."""

from tests.integration.postgres.fixtures import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]

"""The way back of workflows: from PostgreSQL into a lane."""

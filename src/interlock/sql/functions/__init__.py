"""The SQL functions that a lane registers with SQLite, with the results of PostgreSQL."""

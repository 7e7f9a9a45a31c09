"""The contention table: hot rows of lanes, engines and PostgreSQL in one shape (D9)."""

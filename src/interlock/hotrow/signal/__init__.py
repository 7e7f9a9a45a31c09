"""The contention table: what lanes, engines and PostgreSQL have seen of hot rows, in one shape (D9)."""

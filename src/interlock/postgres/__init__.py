"""PostgreSQL: connections and their pool, users' statements, errors, lock waits, and the marks of a move."""

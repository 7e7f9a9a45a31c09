"""SQL: the PostgreSQL dialect that a lane understands, and nothing about lanes or workflows."""

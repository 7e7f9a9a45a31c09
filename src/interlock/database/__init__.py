"""`Database`: a façade over a lane or PostgreSQL, with PostgreSQL's SQL. It knows nothing of workflows."""

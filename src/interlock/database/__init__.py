"""`Database`: one façade over a lane, with PostgreSQL's SQL on top. It knows nothing of workflows."""

"""Move of a database between engines: its shape, its rows, and their verification.

`shape` describes a database in terms of both engines; `lane_shape` and `postgres_shape` read it. Rows travel in the
form in which a lane stores them (`interlock.sql.values`): `lane_rows` reads and writes them unchanged, `postgres_rows`
lets PostgreSQL convert, `values` converts the rest in Python. `digests` compares the rows of two places without
reading both together.
"""

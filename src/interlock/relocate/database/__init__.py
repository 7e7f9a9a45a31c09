"""Move of a database between engines: its shape, its rows, and their verification.

`shape` describes a database in terms of both engines; `lane_shape` and `postgres_shape` read it. Rows travel in the
form in which a lane stores them (`interlock.sql.values`): `rows` reads, writes and digests them in a lane, and
`postgres_rows` in PostgreSQL. `lane`, `postgres` and `bucket_lane` are the ends of a move, `protocol` what the stages
in `mover` expect of them. `route` finds the ends by a name.
"""

"""Move databases and workflows between folders, buckets and PostgreSQL while they are used (decision 0018).

`stages` has the order of every move. `mover` moves a database, row by row: `shape` describes it in terms of both
engines, `rows` has its values as a lane stores them, `source_and_target` what is expected of both ends.
`workflow_move` moves workflows with their histories. `local_lane`, `bucket_lane` and `postgres` are the places.
`route_by_name` finds them by a name.
"""

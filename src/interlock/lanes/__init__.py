"""Lanes: one database, one writer, any number of clients, no lost update, nothing acknowledged before it is durable.

A lane is a SQLite file with a single writer. Transactions that wait are executed one after the other, each in a
savepoint of its own, inside one SQLite transaction, and made durable by one write: the group. So a lane is fastest
where other databases are slowest: when all clients write the same row.

`writer` runs a group, `lane` gathers, drives and acknowledges, `readers` reads beside it, `file` has one owner.
Nothing here knows dialects or workflows: it takes SQLite's SQL and functions over a `Session`.
"""

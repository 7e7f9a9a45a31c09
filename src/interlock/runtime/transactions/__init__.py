"""Events and starts inside a transaction of the caller: they commit or roll back with the caller's data (B11)."""

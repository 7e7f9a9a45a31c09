"""The object log: a lane whose log is a bucket, and whose local file is only a cache (D3)."""

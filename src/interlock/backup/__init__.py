"""Copy databases and put copies back: lanes, buckets and schemas of PostgreSQL."""

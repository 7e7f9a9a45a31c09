"""Definitions: CREATE, ALTER, DROP and TRUNCATE."""

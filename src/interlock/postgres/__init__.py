"""The driver for PostgreSQL: addresses, connections and their cap, and the translation of its errors."""

"""The driver for PostgreSQL: addresses, connections and their cap, and what becomes of the driver's errors."""

"""Workflows in PostgreSQL: readable tables, shared by any number of processes."""

"""Stores of workflows: one protocol, and its implementations."""

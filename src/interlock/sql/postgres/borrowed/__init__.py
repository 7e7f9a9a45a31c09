"""Connections of the user's own program, lent for a few statements inside their transaction.

A connection is recognised by the name of its class, so that no driver is imported that the program does not use
itself.
"""

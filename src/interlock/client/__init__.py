"""The client of a server: the calls of an engine, over HTTP."""

"""Authentication and authorization: API keys, the guard, the scopes of routes, response headers, and the audit log.

Nothing here depends on a web framework: the guard works on headers, and the tables are data. Keys and audit are stored
beside the workflows of a home, where the command line can change them while a server runs.
"""

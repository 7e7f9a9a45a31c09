"""Who may do what: API keys, the guard that reads them, the table of routes, response headers, and the audit log.

Nothing here knows a web framework: the guard is a function over headers, the tables are data, and keys and audit live
beside the workflows of a home, where the command line reaches them while a server runs.
"""

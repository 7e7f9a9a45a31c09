"""The request handlers of the server, by topic."""

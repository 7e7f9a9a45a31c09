"""The server: an engine over HTTP, as an ASGI app that runs alone or mounted in another app."""

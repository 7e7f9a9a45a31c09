"""The server: an engine over HTTP, as an ASGI app that stands alone or inside another one."""

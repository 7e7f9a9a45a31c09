"""The two errors for a request that a server's API keys refuse: not authenticated (401), and not permitted (403).

They are requests that cannot be carried out, as all of `RequestError`. A server raises them, and a client raises the
server's answer. Neither ever shows the key that was presented.
"""

from interlock.errors import RequestError


class NotAuthenticated(RequestError):
    """The request has no API key, or one that is unknown, wrong, revoked or expired (401)."""

    code = "not-authenticated"
    default_why = "This server has API keys, so each request has to show one."
    default_fix = "Send `Authorization: Bearer ilk_…`; `interlock keys create` makes a key."

    def __init__(self, what: str, *, why: str = "", fix: str = "", presented: bool = False) -> None:
        super().__init__(what, why=why, fix=fix)
        self.presented = presented
        """Whether there was a key at all."""


class NotPermitted(RequestError):
    """The key is valid, and its scopes or its limits do not cover the request (403). Nothing was changed."""

    code = "not-permitted"
    default_why = "A key may do what its scopes say, to the machines and ids that it is limited to, and nothing else."
    default_fix = "Use a key that may, or have one made: `interlock keys create --scope …`."

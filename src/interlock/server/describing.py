"""The OpenAPI document at /openapi.json, and the HTML page about all routes at /docs.

The page is generated from the table of routes. It loads nothing from other servers, and works without JavaScript.
"""

import contextlib
import html
import re

from interlock.access import NotAuthenticated, NotPermitted
from interlock.errors import UnavailableError
from interlock.runtime.bound import Bound
from interlock.server.answers import PAGE, Answer, Headers, encode, json_answer
from interlock.server.openapi import document
from interlock.server.problems import phrase
from interlock.server.requests import Request
from interlock.server.routes import ROUTES
from interlock.server.routing import Route, mounted_at
from interlock.server.security.scopes import Scope
from interlock.server.served import Served

VARY: Headers = ((b"vary", b"accept"),)
CSS: Headers = ((b"content-type", b"text/css; charset=utf-8"),)

STYLE = """\
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --strong: #0a6; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
article { border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem; margin: 1rem 0; }
article h3 { margin: 0; font: 600 1rem/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
article h3 b { color: var(--strong); margin-right: .5rem; }
p { margin: .5rem 0; }
code, pre { font: .875rem/1.5 ui-monospace, monospace; }
pre { background: var(--soft); padding: .5rem .75rem; border-radius: .25rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid var(--line); padding: .25rem .5rem; vertical-align: top; }
"""


async def openapi(served: Served, request: Request) -> Answer:
    """The OpenAPI document."""
    request.query()
    return json_answer(await _document(served, request, "/openapi.json"))


async def _document(served: Served, request: Request, path: str) -> dict[str, object]:
    """Return the document, with examples for the machines that the client's key may read."""
    service = served.service
    bounds: list[Bound] = []
    with contextlib.suppress(NotAuthenticated, NotPermitted, UnavailableError):
        await service.guard.fresh()
        identity = service.guard.identify(request.headers)
        identity.require(Scope.READ)
        bounds = [bound for bound in service.chosen(None) if identity.allows(bound.name, None)]
    return document(ROUTES, root=mounted_at(request.scope, path), machines=bounds)


async def docs(served: Served, request: Request) -> Answer:
    """Return the page about all routes, or the document for a client that accepts JSON but not HTML."""
    request.query()
    wanted = request.header(b"accept") or ""
    if "json" in wanted and "html" not in wanted:
        return json_answer(await _document(served, request, "/docs"), headers=VARY)
    return Answer(200, page().encode(), PAGE + VARY, secured=True)


async def style(served: Served, request: Request) -> Answer:
    """Return the style sheet of the page."""
    del served, request
    return Answer(200, STYLE.encode(), CSS)


def page() -> str:
    """Render the page as HTML. Everything in it is escaped."""
    tags = dict.fromkeys(route.tag for route in ROUTES)
    parts = [f"<h2>{_text(tag)}</h2>" + "".join(_article(r) for r in ROUTES if r.tag == tag) for tag in tags]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Interlock: HTTP</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="docs/style.css"></head><body>'
        "<h1>Interlock over HTTP</h1>"
        "<p>JSON in and out. Errors are problem documents (RFC 9457): <code>title</code> names the type of "
        "the problem, <code>detail</code> says what happened and why, <code>fix</code> is how to go on, "
        "<code>code</code> is stable. "
        'The same as <a href="openapi.json">OpenAPI 3.1</a>.</p>' + "".join(parts) + "</body></html>"
    )


def _article(route: Route[Served]) -> str:
    path = re.sub(r"{(\w+)}", lambda found: f"{{{found[1]}}}", route.path)
    parts = [f"<article><h3><b>{route.method}</b>{_text(path)}</h3><p>{_text(route.summary)}.</p>"]
    if route.scope is not None:
        parts.append(f"<p>Scope: <code>{route.scope}</code></p>")
    if route.parameters:
        rows = "".join(
            f"<tr><td><code>{_text(each.name)}</code></td><td>{each.place}</td><td>{_text(each.description)}</td></tr>"
            for each in route.parameters
        )
        parts.append(f"<table>{rows}</table>")
    if route.body_example is not None:
        parts.append(f"<p>Send <code>{route.body_media}</code>:</p><pre>{_example(route.body_example)}</pre>")
    statuses = ", ".join(f"{status} {phrase(status)}" for status in (*route.answers, *route.problems))
    parts.append(f"<p>Answers: {_text(statuses)}</p>")
    if route.answer_example is not None:
        parts.append(f"<pre>{_example(route.answer_example)}</pre>")
    return "".join(parts) + "</article>"


def _example(value: object) -> str:
    return _text(value if isinstance(value, str) else encode(value).decode())


def _text(text: str) -> str:
    return html.escape(text)


PAGES: tuple[Route[Served], ...] = tuple(
    Route(method="GET", path=path, handler=handler, scope=None, summary="", tag="Pages", hidden=True)
    for path, handler in (("/openapi.json", openapi), ("/docs", docs), ("/docs/style.css", style))
)

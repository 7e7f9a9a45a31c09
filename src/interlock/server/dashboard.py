"""The dashboard at `/`: the files of `interlock.ui`, one route each.

The files need no key: they request their data from `/v1` with the viewer's key. Only files of the package can be
requested; a path is never joined to a folder.
"""

from interlock.server.answers import Answer
from interlock.server.problems import HttpProblem
from interlock.server.requests import Request
from interlock.server.routing import Route
from interlock.server.served import Served
from interlock.ui.assets import PAGE, PREFIX, answer, assets


async def asset(served: Served, request: Request) -> Answer:
    """Return one file of the dashboard, or 304 when the browser has it."""
    del served
    path = PREFIX + "/".join(request.parts) if request.parts else PAGE
    known = request.headers.get(b"if-none-match")
    found = answer(path, None if known is None else known.decode("latin-1"))
    if found is None:
        raise HttpProblem(
            404,
            f"the dashboard has no file {path!r:.300}.",
            code="not-found",
            why="It has only the files that are installed with Interlock.",
            fix="Load the page again: after an upgrade it names other files.",
        )
    headers = tuple((name.encode(), value.encode()) for name, value in found.headers)
    return Answer(found.status, found.body, headers, secured=True)


def _depths() -> list[str]:
    depths = {path.removeprefix(PREFIX).count("/") + 1 for path in assets() if path != PAGE}
    return [PREFIX + "/".join(["{folder}"] * (depth - 1) + ["{path}"]) for depth in sorted(depths)]


DASHBOARD: tuple[Route[Served], ...] = tuple(
    Route(method="GET", path=path, handler=asset, scope=None, summary="", tag="Pages", hidden=True)
    for path in (PAGE, *_depths())
)

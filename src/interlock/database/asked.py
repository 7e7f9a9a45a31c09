"""Checks of the arguments of `Database.open`, before anything is opened."""

from urllib.parse import unquote

from interlock.errors import BadUsage
from interlock.hotrow.tools import Tool


def refuse_no_tool(tool: object) -> None:
    """Raise BadUsage unless the argument is a Tool or None."""
    if tool is not None and not isinstance(tool, Tool):
        raise BadUsage(
            f"{tool!r} is not a Tool: it is {type(tool).__name__}.",
            why="A tool says how fast its writes must be, and how many there are.",
            fix='Pass Tool("stock", write_latency_budget=0.05, aggregate_write_rate=200), or leave it out.',
        )


def name_of(url: str) -> str:
    """Return the name for the settings of a database without a home: the last part of its address."""
    return unquote(url.partition("?")[0].rstrip("/").rpartition("/")[2])

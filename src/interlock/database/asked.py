"""What `Database.open` is asked for, before anything is opened."""

from urllib.parse import unquote

from interlock.errors import BadUsage
from interlock.hotrow.tools import Tool


def refuse_no_tool(tool: object) -> None:
    """Raise BadUsage for what is given as a tool and is none."""
    if tool is not None and not isinstance(tool, Tool):
        raise BadUsage(
            f"{tool!r} is no tool: it is {type(tool).__name__}.",
            why="A tool says how fast its writes must be, and how many there are.",
            fix='Pass Tool("stock", write_latency_budget=0.05, aggregate_write_rate=200), or leave it out.',
        )


def name_of(url: str) -> str:
    """What the settings of a database without a home are looked up by: the last part of its address."""
    return unquote(url.partition("?")[0].rstrip("/").rpartition("/")[2])

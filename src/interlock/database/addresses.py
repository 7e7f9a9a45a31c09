"""Where a database lives, as a URL: `lanes:///var/shop/stock` is a file, `memory:` is gone when it is closed."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from interlock.errors import BadUsage

NAME_CHARACTERS_MAX = 100
SUFFIX = ".lane"


def lane_path(url: str) -> Path | None:
    """The file of a lane, or None for a database in memory. Raises BadUsage for anything else."""
    if url == "memory:":
        return None
    parts = urlsplit(url)
    if parts.scheme == "lanes" and not parts.netloc and not parts.query and len(parts.path) > 1:
        path = Path(unquote(parts.path))
        return path.with_name(path.name + SUFFIX)
    raise BadUsage(
        f"{url!r} is not the address of a database; lanes:///folder/name and memory: are.",
        why="The scheme says which engine keeps the data.",
        fix="Write three slashes and an absolute path: lanes:///var/shop/stock.",
    )

"""The progress of work that may take long: a live bar on a terminal, a line per kind of work elsewhere; on stderr."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from interlock.cli.output import stderr

Watch = Callable[[str, int, int], None]


@contextmanager
def watching() -> Generator[Watch]:
    """What is told what is being done, how much of it is done, and how much there is."""
    console = stderr()
    if not console.is_terminal:
        said: set[str] = set()

        def say(what: str, _done: int, of: int) -> None:
            if what not in said:
                said.add(what)
                console.print(f"{what} ({of:,})", soft_wrap=True)

        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("reading the manifest", total=None)
        yield lambda what, done, of: progress.update(task, description=what, completed=done, total=of)

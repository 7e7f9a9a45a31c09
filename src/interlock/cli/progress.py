"""The progress of work that may take long: a live bar on a terminal, a line per kind of work elsewhere; on stderr."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from interlock.cli.output import stderr

Watch = Callable[[str, int, int], None]


@contextmanager
def watching(first: str = "reading the manifest") -> Generator[Watch]:
    """Yield a callback that shows the kind of work, the amount done, and the total."""
    console = stderr()
    if not console.is_terminal:
        printed: set[str] = set()

        def say(what: str, _done: int, of: int) -> None:
            if what not in printed:
                printed.add(what)
                console.print(f"{what} ({of:,})", soft_wrap=True)

        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(first, total=None)
        yield lambda what, done, of: progress.update(task, description=what, completed=done, total=of or None)


@contextmanager
def counting(what: str) -> Generator[Callable[[int], None]]:
    """Yield a callback that counts completed items; shown on a terminal only, and only with a noun."""
    console = stderr()
    if not what or not console.is_terminal:
        yield lambda _more: None
        return
    with Progress(
        TextColumn("{task.completed:,.0f} {task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda more: progress.advance(task, more)

"""The command line: `interlock check`, `diagram`, `serve`, `demo` and all the others.

The top layer: it loads machines, calls the layers below, and prints. No layer below imports it.

The program is imported when it is run, not with this package: the import takes a moment, in which Ctrl-C must be as
clean as at any other time, and the demo's worker is a separate program that does not need it.
"""

import sys
from collections.abc import Sequence

from interlock.cli.console import Exit

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (`sys.argv` without one) and return its exit code."""
    try:
        from interlock.cli.program import main as run  # noqa: PLC0415 -- see above.
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        return Exit.INTERRUPTED
    return run(arguments)

"""The command line: `interlock check`, `diagram`, `describe`, `plan` and `demo`.

The top layer: it loads what it is pointed at, asks the layers below, and prints. Nothing below knows of it.
"""

from interlock.cli.program import main

__all__ = ["main"]

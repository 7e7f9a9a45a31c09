"""Types the console sessions of a page into a shell, as a reader would: a server in one window, curl in another.

A page that starts a server (`$ interlock serve …`, or `$ make run` of a project) is run line by line in a folder of its
own. The address that it shows stands for a free port, in what is typed and in what is printed. Every command must
succeed, and what the page shows below a line must be what the line prints, with `…` for anything. A second server at
the same page takes the place of the first, as after Ctrl-C. Nothing is installed: a project finds its environment.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.docs.blocks import Block, PageFailed, printed, read_blocks

SERVES = re.compile(r"(?:^|\s)(?:interlock serve|make run)\b")
LEFT_OUT = re.compile(r"(?:pip install|make (?:demo|test)\b|\. \.venv/|interlock demo\b)")
"""What installs, or takes minutes, and is tried elsewhere."""

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
SERVING = re.compile(r"^Serving .* at (http://127\.0\.0\.1:\d+)")
SHOWN = "http://127.0.0.1:8080"
TIMEOUT_S = 300.0


class Typed:
    """One line that a page has a reader type, and the lines that it shows below."""

    def __init__(self, line: int, command: str, shown: list[str]) -> None:
        self.line = line
        self.command = command
        self.shown = shown


def typed_in(block: Block) -> list[Typed]:
    """The lines of a console block; one that ends with a backslash goes on."""
    found: list[Typed] = []
    for number, text in enumerate(block.text.splitlines(), start=block.line):
        if found and found[-1].command.endswith("\\") and not found[-1].shown:
            found[-1].command = found[-1].command[:-1] + text.strip()
        elif text.startswith("$ "):
            found.append(Typed(number, text[2:].strip(), []))
        elif found:
            found[-1].shown.append(text)
    return found


def consoles(text: str) -> list[Block]:
    """The console blocks of a page that are meant to be run."""
    return [block for block in read_blocks(text) if block.language == "console" and block.executed]


def is_session(text: str) -> bool:
    """Whether a page has its reader start a server."""
    return any(SERVES.search(each.command) for block in consoles(text) for each in typed_in(block))


class Shell:
    """A shell in a folder: what is exported and where one stands is kept from line to line. Ends its servers."""

    def __init__(self, folder: Path, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.url = ""
        """Where the server of this moment is."""
        self._state = folder / ".state.sh"
        self._server: subprocess.Popen[str] | None = None
        programs = folder / ".programs"
        write_programs(programs)
        foreign = ("INTERLOCK_", "PYTEST_", "MAKE", "MFLAGS")  # What the tests were started with is not the reader's.
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(foreign)},
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
            **(environment or {}),
        }
        self._state.write_text(f"cd {shlex.quote(str(folder))}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def type(self, command: str) -> tuple[int, str, str]:
        """Type a line; its exit code, and what it printed to stdout and stderr."""
        if SERVES.search(command):
            return 0, self.serve(command), ""
        done = subprocess.run(
            ["/bin/sh", "-c", self._script(ADDRESS.sub(self.url or SHOWN, command))],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT_S,
            check=False,
        )
        return done.returncode, self._readable(done.stdout), self._readable(done.stderr)

    def serve(self, command: str) -> str:
        """Start a server, and stop the one before; what it says until it serves."""
        self.stop()
        plain = re.sub(r" --port \d+|\s+#.*|\s*&$", "", command)
        if plain.startswith("make "):
            furnish(self.here)
            plain += " PORT=0"
        else:
            plain += " --port 0"
        self._server = subprocess.Popen(
            ["/bin/sh", "-c", f". {shlex.quote(str(self._state))}\nexec {plain}\n"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            start_new_session=True,  # So that whatever it starts can be ended with it.
        )
        assert self._server.stdout is not None
        said = ""
        for line in self._server.stdout:
            said += line
            if found := SERVING.search(line):
                self.url = found[1]
                return ADDRESS.sub(SHOWN, said)
        raise AssertionError(f"{plain}: exit {self._server.wait()}\n{said}")

    @property
    def here(self) -> Path:
        """The folder in which the shell stands."""
        return Path(self.type("pwd")[1].rstrip("\n"))

    def stop(self, number: int = signal.SIGINT) -> None:
        """Press Ctrl-C in the server's window, or send another signal, and wait until it has gone."""
        if self._server is None:
            return
        server, self._server = self._server, None
        if server.poll() is None:
            os.killpg(server.pid, number)
        server.communicate(timeout=TIMEOUT_S)

    def _script(self, command: str) -> str:
        state = shlex.quote(str(self._state))
        kept = f"{{ export -p; echo cd \\'\"$PWD\"\\'; }} > {state}"
        return f"set -f; . {state}; set +f\n{command}\ncode=$?\n{kept}\nexit $code\n"

    def _readable(self, text: str) -> str:
        return text.replace(self.url, SHOWN) if self.url else text


def write_programs(folder: Path) -> None:
    """Put `interlock` and `python` into a folder, as an installation would: those that run this test."""
    folder.mkdir(parents=True)
    for name, words in {"interlock": [sys.executable, "-m", "interlock"], "python": [sys.executable]}.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o755)


def furnish(project: Path) -> None:
    """Give a project that `interlock new` has made its environment, as if its Makefile had installed it."""
    if not (project / ".venv").exists():
        write_programs(project / ".venv" / "bin")
        (project / ".venv" / "installed").touch()  # Newer than what it is made from, so it is not made again.


def squeezed(text: str) -> str:
    """The text with one blank for many: how wide a column is depends on what stands in it."""
    return re.sub(r"[ \t]+", " ", text)


def is_shown(typed: Typed, output: str) -> bool:
    """Whether a line has printed what the page shows."""
    return printed(list(map(squeezed, typed.shown)), squeezed(output))


def run_session(path: Path, shown: str, shell: Shell) -> int:
    """Type everything that a page shows; the number of lines. Raises PageFailed with the line that did not do."""
    count = 0
    for block in read_blocks(path.read_text(encoding="utf-8")):
        if not block.executed:
            continue
        if block.saved_as is not None:
            (shell.folder / block.saved_as).write_text(block.text, encoding="utf-8")
        if block.language != "console":
            continue
        for each in typed_in(block):
            if LEFT_OUT.match(each.command):
                continue
            until_s = time.monotonic() + TIMEOUT_S * block.soon
            code, output, complaint = shell.type(each.command)
            while not code and not is_shown(each, output) and time.monotonic() < until_s:
                code, output, complaint = shell.type(each.command)
            if code or not is_shown(each, output):
                raise PageFailed(f"{shown}:{each.line}: $ {each.command}: exit {code}\n{output}{complaint}")
            count += 1
    return count

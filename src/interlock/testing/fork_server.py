"""The fork server of `processes`: imports a workload once, and forks one process for each of its lives.

It receives requests through a socket, one at a time: start a workload (with the write end of a pipe and further
descriptors for it), or wait for the end of a process. It has no threads, because a fork with threads may leave locks
locked for ever. When the other end of the socket is closed, it kills the processes that still run, and ends.
"""

import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import cast

from interlock.faultpoints import Listener, listen

REQUEST_BYTES_MAX = 1_000_000
DESCRIPTORS_MAX = 8
LINE_BYTES_MAX = 4_000
"""A line is written atomically, which a pipe guarantees up to 4,096 bytes."""

Say = Callable[[str], None]


def serve(requests: socket.socket) -> None:
    """Answer requests until the other end is closed; then kill the processes that were not reaped."""
    unreaped: set[int] = set()
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, DESCRIPTORS_MAX)
        if not data:
            for number in unreaped:
                os.kill(number, signal.SIGKILL)
            return
        request = json.loads(data)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            unreaped.discard(request["reap"])
            answer: dict[str, object] = {"ended": os.waitstatus_to_exitcode(status)}
        else:
            answer = _start(request, descriptors, requests)
            if isinstance(started := answer.get("number"), int):
                unreaped.add(started)
        requests.send(json.dumps(answer).encode())


def _start(request: dict[str, object], descriptors: list[int], requests: socket.socket) -> dict[str, object]:
    try:
        module, _, name = str(request["workload"]).partition(":")
        workload = getattr(import_module(module), name)
        number = os.fork()
    except (ImportError, AttributeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    else:
        if number == 0:
            requests.close()
            _live(workload, request, *descriptors)
        return {"number": number}
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _live(workload: Callable[..., object], request: dict[str, object], pipe: int, *descriptors: int) -> None:
    """Run the workload in the forked process, and exit without the helper's cleanup."""
    code = 1
    try:
        signal.alarm(int(str(request["lifetime_s"])))
        die_at = request["die_at"]
        if isinstance(die_at, list):
            point, visit = cast("tuple[str, int]", die_at)
            listen(_dying_at(point, visit))
        args = request["args"]
        assert isinstance(args, list)
        workload(_speaker(pipe), *args, *descriptors)
        code = 0
    except BaseException:  # noqa: BLE001 -- reported to the parent through the pipe; this process ends here in any case.
        for line in traceback.format_exc().splitlines():
            os.write(pipe, f"!{line}"[:LINE_BYTES_MAX].encode() + b"\n")
    finally:
        os._exit(code)


def _dying_at(point: str, reached: int) -> Listener:
    left = reached

    def listener(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return listener


def _speaker(pipe: int) -> Say:
    def say(line: str) -> None:
        data = line.encode() + b"\n"
        if len(data) > LINE_BYTES_MAX or data.count(b"\n") != 1:
            raise ValueError(f"a line has at most {LINE_BYTES_MAX:,} bytes and no line break")
        os.write(pipe, data)

    return say


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles Ctrl-C, and closes the socket.
    serve(socket.socket(fileno=int(sys.argv[1])))

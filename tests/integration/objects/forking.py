"""A process that forks before and after it has spoken with a bucket, and tells what became of its children."""

import os
import signal
from collections.abc import Callable

from interlock.errors import InterlockError
from interlock.lanes.objectlog.bucket_protocol import Environment
from interlock.lanes.objectlog.remote_bucket import open_bucket, open_folder, open_proven
from interlock.urls import parse_bucket_url

LIFETIME_S_MAX = 60


def fork(say: Callable[[str], None], url: str) -> None:
    """One child before the parent has made a client, one after."""

    def read() -> str:
        return (
            "read"
            if open_bucket(parse_bucket_url(url), request_timeout_s=20).get("log/1") is not None
            else "found nothing"
        )

    address, world = parse_bucket_url(url), Environment(pause=lambda _: None)
    _in_child(say, "early child", read)
    say(f"parent: {read()}")
    _in_child(
        say,
        "late child",
        read,
        lambda: str(open_folder(address, request_timeout_s=20)),
        lambda: str(open_proven(address, request_timeout_s=20, world=world)),
    )


def _in_child(say: Callable[[str], None], who: str, *uses: Callable[[], str]) -> None:
    hearing, speaking = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(LIFETIME_S_MAX)
            for use in uses:
                try:
                    said = use()
                except InterlockError as error:
                    said = f"{error.code}: {error.fix.partition(',')[0]}"
                os.write(speaking, f"{said}\n".encode())
        finally:
            os._exit(0)
    os.close(speaking)
    with os.fdopen(hearing) as words:
        for line in words:
            say(f"{who}: {line.strip()}")
    os.waitpid(child, 0)

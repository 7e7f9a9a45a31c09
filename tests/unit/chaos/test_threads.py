"""C14: what blocks is waited for to its end, also by somebody who is cancelled meanwhile."""

import asyncio
import threading

import pytest

from interlock.chaos.shop import in_thread


def test_the_result_comes_back() -> None:
    assert asyncio.run(in_thread(lambda: 7)) == 7


def test_an_error_comes_back() -> None:
    def failing() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        asyncio.run(in_thread(failing))


def test_a_cancellation_is_heeded_when_the_call_has_returned() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def blocking() -> None:
        begun.set()
        go_on.wait()
        done.set()

    async def main() -> None:
        task = asyncio.ensure_future(in_thread(blocking))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done.is_set()

    asyncio.run(main())

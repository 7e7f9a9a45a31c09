"""What is said when a Redis cannot be used: the cause, and what to do about it where that is known."""

import pytest
from redis import exceptions

from interlock.redis.connection import why_gone


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            exceptions.AuthenticationError("WRONGPASS invalid username-password pair"),
            "refuses the user or the password",
        ),
        (exceptions.NoPermissionError("this user has no permissions to run 'evalsha'"), "lacks rights"),
        (exceptions.MovedError("12 10.0.0.7:6379"), "add cluster=yes"),
        (exceptions.RedisClusterException("Cluster mode is not enabled on this node"), "take cluster=yes out"),
        (exceptions.ReadOnlyError("You can't write against a read only replica."), "address of its primary"),
        (exceptions.OutOfMemoryError("command not allowed"), "memory is full"),
        (ConnectionRefusedError(111, "refused"), "ConnectionRefusedError: [Errno 111] refused"),
    ],
)
def test_the_cause_is_said_with_what_to_do(error: Exception, said: str) -> None:
    told = why_gone(error, cluster=isinstance(error, exceptions.RedisClusterException))
    assert said in told
    assert type(error).__name__ in told

"""What a key stands for: the same call in the next life of the program is recognised, another call is refused.

The digest is kept in the file, so some are written down here: a change of the rule, in Interlock or in a later Python,
would refuse honest repetitions and must be noticed.
"""

import enum
import functools
import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from interlock.database.call_digest import described, digest_of, mentioned
from interlock.errors import InvalidPayload
from interlock.hotrow.tables import check_key
from interlock.lanes.idempotency_keys import KEY_CHARACTERS_MAX

Function = Callable[..., object]


def same(one: Function, other: Function) -> bool:
    return digest_of("transact", one, ()) == digest_of("transact", other, ())


async def buy(tx: object, amount: int = 1) -> None:
    """A function at module level."""


async def sell(tx: object, amount: int = 1) -> None:
    """Another one."""


class Shop:
    """An object with state that changes."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def buy(self, tx: object) -> None:
        """Bought."""

    async def sell(self, tx: object) -> None:
        """Sold."""

    async def __call__(self, tx: object) -> None:
        """Called itself."""

    @classmethod
    async def of_class(cls, tx: object) -> None:
        """A method of the class."""


class Outlet(Shop):
    """It inherits its methods."""


class Basket(list[str]):
    """A list with a method: something that changes."""

    async def buy(self, tx: object) -> None:
        """Bought."""


@dataclass(frozen=True)
class Account:
    """A value: two of different content are different."""

    number: int
    shop: object = None

    async def __call__(self, tx: object) -> None:
        """Called itself."""

    async def buy(self, tx: object) -> None:
        """Bought."""


@dataclass
class Draft:
    """Not a value: it changes."""

    number: int

    async def buy(self, tx: object) -> None:
        """Bought."""


class Money(NamedTuple):
    """A tuple is a value."""

    cents: int

    async def buy(self, tx: object) -> None:
        """Bought."""


class Colour(enum.Enum):
    """An Enum is a value."""

    RED = "red"
    BLUE = "blue"

    async def buy(self, tx: object) -> None:
        """Bought."""


def made(amount: int, *, then: Function = buy) -> Function:
    async def bought(tx: object) -> object:
        return tx, amount, then

    return bought


def wrapping(function: Function) -> Function:
    @functools.wraps(function)
    def wrapper(*args: object) -> object:
        return function(*args)

    return wrapper


def hiding(function: Function) -> Function:
    def wrapper(*args: object) -> object:
        return function(*args)

    return wrapper


def redefined(number: int) -> Function:
    if number == 1:

        async def work(tx: object) -> object:
            return tx, "one"

        return work

    async def work(tx: object) -> object:  # type: ignore[no-redef]
        return tx, "two"

    return work


def calling_itself(start: int) -> Function:
    def one(tx: object) -> object:
        return two(tx) if start else tx

    def two(tx: object) -> object:
        return one(tx)

    return one


def capturing_too_early() -> Function:
    def function(tx: object) -> object:
        return tx, later

    _ = digest_of("transact", function, ())
    later = 1
    return function


SAME: dict[str, tuple[Function, Function]] = {
    "a function": (buy, buy),
    "a function made again": (made(1), made(1)),
    "what it captures may be a clock": (made(1), made(2)),
    "an object is its class": (Shop("a").buy, Shop("b").buy),
    "an object that is called": (Shop("a"), Shop("b")),
    "a dataclass that changes": (Draft(1).buy, Draft(2).buy),
    "a list that changes": (Basket(["a"]).buy, Basket().buy),
    "a value": (Account(1).buy, Account(1).buy),
    "a value that holds an object": (Account(1, Shop("a")), Account(1, Shop("b"))),
    "a partial": (functools.partial(buy, amount=1), functools.partial(buy, amount=1)),
    "a partial with an object": (functools.partial(buy, Shop("a")), functools.partial(buy, Shop("b"))),
    "a wrapped function is known by its name": (wrapping(buy), buy),
    "functions that capture each other": (calling_itself(1), calling_itself(2)),
    "a variable not assigned yet": (capturing_too_early(), capturing_too_early()),
}
OTHER: dict[str, tuple[Function, Function]] = {
    "functions": (buy, sell),
    "methods": (Shop("a").buy, Shop("a").sell),
    "a method and a function": (Shop("a").buy, buy),
    "an inherited method": (Shop("a").buy, Outlet("a").buy),
    "an inherited method of the class": (Shop.of_class, Outlet.of_class),
    "a method of the class and of an object": (Shop.buy, Shop("a").buy),
    "objects of other classes": (Shop("a"), Outlet("a")),
    "values": (Account(1).buy, Account(2).buy),
    "values that are called": (Account(1), Account(2)),
    "tuples": (Money(1).buy, Money(2).buy),
    "members": (Colour.RED.buy, Colour.BLUE.buy),
    "constants of lambdas": (lambda _tx: 1, lambda _tx: 2),
    "texts of lambdas": (lambda _tx: "UPDATE a", lambda _tx: "UPDATE b"),
    "types of constants": (lambda _tx: 1, lambda _tx: True),
    "names of lambdas": (lambda tx: buy(tx), lambda tx: sell(tx)),  # noqa: PLW0108 -- the lambdas are under test.
    "operators of lambdas": (lambda tx: tx + tx, lambda tx: tx - tx),
    "comparisons of lambdas": (lambda tx: tx < tx, lambda tx: tx > tx),  # noqa: PLR0124 -- as above.
    "slices": (lambda tx: tx[1:2], lambda tx: tx[1:3]),
    "code inside": (lambda tx: [1 for _ in tx], lambda tx: [2 for _ in tx]),
    "collections": (lambda tx: tx in {1, 2}, lambda tx: tx in {1, 3}),
    "defaults of lambdas": (lambda tx, n=1: (tx, n), lambda tx, n=2: (tx, n)),
    "named defaults": (lambda tx, *, n=1: (tx, n), lambda tx, *, n=2: (tx, n)),
    "nested functions of one name": (redefined(1), redefined(2)),
    "captured functions": (made(1, then=buy), made(1, then=sell)),
    "functions hidden by a decorator": (hiding(buy), hiding(sell)),
    "nested functions in a wrapper": (wrapping(redefined(1)), wrapping(redefined(2))),
    "cached functions": (functools.lru_cache(buy), functools.lru_cache(sell)),
    "cached nested functions": (functools.lru_cache(redefined(1)), functools.lru_cache(redefined(2))),
    "arguments of a partial": (functools.partial(buy, 1), functools.partial(buy, 2)),
    "named arguments of a partial": (functools.partial(buy, amount=1), functools.partial(buy, amount=2)),
    "functions of a partial": (functools.partial(buy, 1), functools.partial(sell, 1)),
    "functions given to a partial": (functools.partial(made, then=buy), functools.partial(made, then=sell)),
    "classes": (Shop, Outlet),
    "functions of C": (len, print),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_function_is_recognised(name: str) -> None:
    one, other = SAME[name]
    assert same(one, other)


@pytest.mark.parametrize("name", OTHER)
def test_another_function_is_told_apart(name: str) -> None:
    one, other = OTHER[name]
    assert not same(one, other)


def test_a_wrapper_of_something_that_is_no_function_is_told_apart() -> None:
    one, other = wrapping(made(1)), wrapping(made(1))
    one.__wrapped__, other.__wrapped__ = Shop("a"), Outlet("a")  # type: ignore[attr-defined]
    assert not same(one, other)
    itself = functools.lru_cache(buy)
    itself.__wrapped__ = itself
    assert same(itself, itself)


def test_no_address_no_line_and_no_bytecode_is_in_it() -> None:
    def work(tx: object) -> object:
        """What it does."""
        return tx, [number for number in (1, None, "a") if number]

    assert described(work) == [
        "nested",
        f"{__name__}.test_no_address_no_line_and_no_bytecode_is_in_it.<locals>.work",
        ("int 1", "name number", "name tx", "str 'a'"),
        {},
        [],
        {},
    ]
    assert mentioned(work.__code__) is mentioned(work.__code__), "looked at once"


@pytest.mark.parametrize(
    ("digest", "args"),
    [
        ("af360e6c2c4dcea6", ()),
        ("eb2a24448587b7bd", (1, "a", None, True, 0.5, b"x", Decimal("1.10"), UUID(int=1), {"b": [1], "a": (2,)})),
    ],
)
def test_digests_stay_what_they_are(digest: str, args: tuple[object, ...]) -> None:
    assert digest_of("execute", "UPDATE counter SET n = $1", args).hex()[:16] == digest


PROGRAM = """
import functools
from interlock.database.call_digest import digest_of

class Shop:
    async def buy(self, tx): return {"a", "b", "c"}
    async def __call__(self, tx): ...

def nested():
    async def work(tx): return [x for x in tx if x in {"a", "b", "c"}]
    return work

for function in (Shop().buy, Shop(), functools.partial(Shop.buy, Shop()), nested(), lambda tx: tx.x in {"a", "b", "c"}):
    print(digest_of("transact", function, ({"b": 1, "a": 2},)).hex())
"""


@pytest.mark.slow
def test_the_next_life_of_the_program_finds_the_same(tmp_path: Path) -> None:
    """Another address for every object, another order in every set, and other line numbers."""
    told: list[str] = []
    for number, seed in enumerate(("1", "2", "3")):
        (tmp_path / "program.py").write_text("\n" * number + PROGRAM)
        run = subprocess.run(
            [sys.executable, tmp_path / "program.py"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(run.stdout)
    assert len(told[0].split()) == 5
    assert len(set(told[0].split())) == 5
    assert told[1:] == told[:-1]


def test_dictionaries_are_equal_in_any_order() -> None:
    one = digest_of("transact", buy, ({"a": 1, "b": {"c": 2, "d": 3}},))
    assert one == digest_of("transact", buy, (OrderedDict(b={"d": 3, "c": 2}, a=1),))
    assert one != digest_of("transact", buy, ({"a": 1, "b": {"c": 3, "d": 2}},))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1,), (2,)),
        ((1,), (True,)),
        ((1,), (1.0,)),
        ((1,), ("1",)),
        ((1, 2), ((1, 2),)),
        (([1, 2],), ((1, 2),)),
        ((2**70,), (2**70 + 1,)),
        ((10**5_000,), (-(10**5_000),)),
        ((b"a",), ("a",)),
        ((), (None,)),
        (({"$": "int", "v": "0x1"},), (1,)),
    ],
)
def test_other_arguments_are_told_apart(one: tuple[object, ...], other: tuple[object, ...]) -> None:
    assert digest_of("execute", "SELECT 1", one) == digest_of("execute", "SELECT 1", one)
    assert digest_of("execute", "SELECT 1", one) != digest_of("execute", "SELECT 1", other)


def test_whatever_holds_the_same_bytes_is_the_same_argument() -> None:
    digests = {digest_of("execute", "SELECT $1", (kind(b"ab"),)) for kind in (bytes, bytearray, memoryview)}
    assert len(digests) == 1


CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({1, 2}, "a value of type set"),
        ([Shop("a")], "a value of type Shop"),
        ({"a": {1: 2}}, "a dict with keys that are not text"),
        (CIRCLE, "nested deeper than 200 levels"),
    ],
)
def test_an_argument_that_cannot_be_compared_is_told_as_one(value: object, told: str) -> None:
    with pytest.raises(InvalidPayload, match="argument 2 holds") as caught:
        _ = digest_of("transact", buy, (1, value))
    assert told in caught.value.what
    assert "result" not in str(caught.value)
    assert "functools.partial" in caught.value.fix


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (7, "is int"),
        (b"k", "is bytes"),
        (True, "is bool"),
        ("", "has 0 characters"),
        ("x" * (KEY_CHARACTERS_MAX + 1), "has 501 characters"),
        ("a\x00b", r"'a\\x00b' holds NUL"),
        ("\ud800", r"'\\ud800' holds NUL or half of a surrogate pair"),
    ],
)
def test_what_is_no_key_is_told(key: object, told: str) -> None:
    with pytest.raises(InvalidPayload, match=told) as caught:
        check_key(key)
    str(caught.value).encode()
    assert "text of 1 to 500 characters" in caught.value.what


@pytest.mark.parametrize("key", ["k", "x" * KEY_CHARACTERS_MAX, "Ünï \U0001f600", "a b/c"])
def test_any_text_is_a_key(key: str) -> None:
    check_key(key)

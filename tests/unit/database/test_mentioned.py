"""What a nested function mentions is what its source says, whatever the version of Python makes of it."""

import dis
from collections.abc import Callable
from types import FunctionType

from interlock.database.call_digest import _constants, mentioned

VERSIONS = """
def outer(base):
    async def work(tx, n=3):
        "A docstring."
        import os
        try:
            async with tx.begun() as y:
                for i in range(10):
                    rows = [r.id * 2 for r in await tx.query("SELECT", i, named=4) if r.z[1:2] != -1]
        except (ValueError, KeyError) as error:
            raise RuntimeError(f"x {error!r:>10} {'%s' % n}") from error
        finally:
            await tx.execute("UPDATE", 256, 1.5, None, True, b"x")
        while n < 7:
            n += 1
        class Inner:
            "Another."
            z = 1
            def method(self):
                self.w = 1
                return super().method()
        assert {k: v for k, v in rows}, {1, 2}
        return [5, 6, 7], (8, 9), n in [11, 12], base, Inner, lambda q: q + base, any(i == 13 for i in rows), y[:, 14]
    return work
"""
MENTIONED = """
bool True; bytes b'x'; float 1.5; int -1; int 0; int 1; int 10; int 11; int 12; int 13; int 14; int 2; int 256; int 4
int 5; int 6; int 7; int 8; int 9; name Inner; name KeyError; name RuntimeError; name ValueError; name any; name base
name begun; name error; name execute; name i; name id; name k; name method; name n; name os; name q; name query
name r; name range; name rows; name self; name super; name tx; name v; name w; name y; name z; operator !=; operator %
operator *; operator +; operator +=; operator <; operator ==; str ' '; str '%s'; str '>10'; str 'Inner'; str 'SELECT'
str 'UPDATE'; str 'named'; str 'x '
"""


def test_every_version_of_python_finds_the_same_mentioned() -> None:
    """The list was the same on 3.11, 3.12 and 3.13, whose compilers make quite different code of it."""
    names: dict[str, Callable[[int], FunctionType]] = {}
    exec(VERSIONS, {}, names)
    found = mentioned(names["outer"](1).__code__)
    assert "; ".join(found).split("; ") == MENTIONED.strip().replace("\n", "; ").split("; ")


def test_constants_are_found_where_later_versions_put_them() -> None:
    """Python 3.14 has constant slices, and small numbers inside instructions."""

    def last(tx: list[int]) -> object:
        return tx, 123

    code = last.__code__
    sliced = code.replace(co_consts=tuple(slice(4, 5) if value == 123 else value for value in code.co_consts))
    assert mentioned.__wrapped__(sliced) == ("int 4", "int 5", "name tx")
    some = next(iter(dis.get_instructions(code)))  # Versions differ in what else an instruction has.
    step = some._replace(opname="LOAD_SMALL_INT", arg=7, argval=7)
    assert list(_constants(code, step)) == [7]

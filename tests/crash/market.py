"""One stock, or one set of balances, through many crashes: what must be true whenever anybody looks.

The books are kept outside the processes that are killed, from what they said: what was reported has happened, what was
announced and not reported may have happened, and nothing else has.
"""

import json
from collections.abc import Iterable
from typing import Literal, Protocol

from interlock.clock import SystemChance
from interlock.testing.faults import At, Process, Processes
from tests.crash.buyers import LIMIT, TOTAL

BUYERS = 200
PURCHASES_MAX = 200
"""So many purchases the shops begin together before they are killed; each says two lines."""

Trade = Literal["buy", "pay"]


class Where(Protocol):
    """The surroundings of the database."""

    url: str
    cache: str | None

    def crashed(self) -> None:
        """What else a crash does."""
        ...


class Market:
    """The lives of one market, from one seed; `shops` processes at once where the engine lets them."""

    def __init__(
        self,
        processes: Processes,
        site: Where,
        trade: Trade,
        *,
        seed: int,
        shops: int = 1,
        careless: bool = False,
    ) -> None:
        self.told = f"seed {seed}, {trade} at {site.url}"
        self.crashes = 0
        self.seen: list[int] = []
        """What was there when somebody looked last: available, reserved and sold, or the balances."""
        self.gone = self.held = 0
        """What is certain: units sold or paid out, and units that are reserved."""
        self._processes = processes
        self._site = site
        self._trade = trade
        self._chance = SystemChance(seed)
        self._shops = shops
        self._alone = shops == 1
        """Whether what is seen and what was said are of the same moment: not while another shop trades on."""
        self._careless = careless
        self._lives = 0
        self._unknown: dict[str, tuple[int, int]] = {}
        first = processes.start("tests.crash.buyers:make", site.url, site.cache)
        assert list(first.lines()) == ["made"], self.told
        first.end()
        first.close()

    def crash(self) -> None:
        """All shops open, and all are killed at some instant, while the first of them is busy."""
        most = PURCHASES_MAX // self._shops
        shops = self._open(most)
        self._read(shops[0].lines(1 + int(self._chance.fraction() * 2 * most)))
        for shop in shops:
            self._read(shop.lines_for(self._chance.fraction() * 0.004))
            shop.kill()
        for shop in shops:
            self._read(shop.lines())
            assert shop.end() == -9, f"{self.told}: it ended by itself, so it was not killed"
            shop.close()
            self.crashes += 1
        self._site.crashed()

    def crash_at(self, point: str) -> None:
        """A shop that kills itself when it comes to a point."""
        [shop] = self._open(0, At(point))
        self._read(shop.lines())
        assert shop.end() == -9, f"{self.told}: it never came to {point}"
        shop.close()
        self.crashes += 1
        self._site.crashed()

    def finish(self) -> None:
        """Lives that nobody kills, until nothing is left to sell: afterwards the books are exact."""
        for shop in self._open(0):
            lines = list(shop.lines())
            self._read(lines)
            assert shop.end() == 0, self.told
            assert lines[-1] == "done", self.told
            shop.close()
        self._open_and_look()
        assert all(name.startswith("~") for name in self._unknown), self.told
        if self._trade == "buy":
            assert self.seen[1] == self.held, f"{self.told}: {self.held} are held, and there {self.seen}"

    def _open(self, most: int, die_at: At | None = None) -> list[Process]:
        self._lives += 1
        unknown = [name for name in self._unknown if not name.startswith("~")]
        return [
            self._start(f"{self._lives}.{shop}", [] if shop else unknown, BUYERS, most, die_at)
            for shop in range(self._shops)
        ]

    def _open_and_look(self) -> None:
        self._alone = True
        shop = self._start("last", [], 0, 0)
        self._read(shop.lines())
        assert shop.end() == 0, self.told
        shop.close()

    def _start(self, life: str, unknown: list[str], buyers: int, most: int, die_at: At | None = None) -> Process:
        workload, crowd = f"tests.crash.buyers:{self._trade}", (buyers + self._shops - 1) // self._shops
        site = self._site
        return self._processes.start(
            workload, site.url, site.cache, life, unknown, crowd, most, self._careless, die_at=die_at
        )

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            kind, rest = line[0], line[1:]
            if kind == "=":
                self.seen = [int(number) for number in json.loads(rest)]
                self._hold()
                continue
            if line == "done":
                continue
            name, one, other = rest.split(" ")
            if kind == "?":
                self._unknown[name] = (int(one), int(other))
            else:
                assert kind == "+", f"{self.told}: {line}"
                del self._unknown[name]
                self.gone += int(one)
                self.held += int(other)

    def _hold(self) -> None:
        """The invariant, and that whatever was acknowledged is accounted for."""
        if self._trade == "buy":
            assert sum(self.seen) == TOTAL, f"{self.told}: {self.seen}"
            assert min(self.seen) >= 0, f"{self.told}: {self.seen}"
            gone = self.seen[2]
        else:
            assert min(self.seen) >= LIMIT, f"{self.told}: {self.seen}"
            gone = TOTAL - sum(self.seen)
        if not self._alone:
            return
        least = self.gone + sum(low for low, _ in self._unknown.values())
        most = self.gone + sum(high for _, high in self._unknown.values())
        assert least <= gone <= most, f"{self.told}: {gone} are gone, and must be {least} to {most}"

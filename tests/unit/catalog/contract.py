"""What holds for a catalog wherever it is kept. A class of tests below it gives the home."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.catalog.catalog import ALL, Catalog, workflows_at
from interlock.catalog.catalog_entries import CatalogEntry, Kind, below
from interlock.errors import BadUsage, CorruptionError


class Contract:
    """The fixtures: `home`, an address where nothing was written yet; `spoil`, which makes its catalog unreadable."""

    def test_a_home_without_a_catalog_has_no_names_and_looking_makes_none(self, home: str) -> None:
        catalog = Catalog(home)
        assert asyncio.run(catalog.names()) == {}
        assert asyncio.run(catalog.entry("stock")) == CatalogEntry()
        assert asyncio.run(catalog.names()) == {}

    def test_a_name_that_was_opened_is_known_and_lives_below_the_home(self, home: str) -> None:
        assert asyncio.run(Catalog(home).locate("stock")) == below(home, "stock")
        assert asyncio.run(Catalog(home).names()) == {"stock": CatalogEntry()}

    def test_a_move_is_entered_and_a_later_one_replaces_it(self, home: str) -> None:
        assert asyncio.run(Catalog(home).enter("stock", "lanes:///a", 1)) == CatalogEntry("lanes:///a", 1)
        assert asyncio.run(Catalog(home).locate("stock")) == "lanes:///a"
        assert asyncio.run(Catalog(home).enter("stock", "lanes:///b", 3)) == CatalogEntry("lanes:///b", 3)
        assert asyncio.run(Catalog(home).entry("stock")) == CatalogEntry("lanes:///b", 3)

    def test_a_lower_epoch_never_replaces_a_higher_one(self, home: str) -> None:
        asyncio.run(Catalog(home).enter("stock", "lanes:///b", 3))
        assert asyncio.run(Catalog(home).enter("stock", "lanes:///a", 2)) == CatalogEntry("lanes:///b", 3)
        assert asyncio.run(Catalog(home).entry("stock")) == CatalogEntry("lanes:///b", 3)

    def test_the_same_move_entered_twice_is_entered_once(self, home: str) -> None:
        for _ in range(2):
            assert asyncio.run(Catalog(home).enter("stock", "lanes:///a", 1)) == CatalogEntry("lanes:///a", 1)
        assert asyncio.run(Catalog(home).names()) == {"stock": CatalogEntry("lanes:///a", 1)}

    def test_two_places_with_one_epoch_cannot_both_be_true(self, home: str) -> None:
        asyncio.run(Catalog(home).enter("stock", "lanes:///a", 1))
        with pytest.raises(CorruptionError, match="lanes:///a since epoch 1, and now at lanes:///b"):
            asyncio.run(Catalog(home).enter("stock", "lanes:///b", 1))
        assert asyncio.run(Catalog(home).entry("stock")) == CatalogEntry("lanes:///a", 1)

    def test_who_comes_home_is_entered_as_living_there(self, home: str) -> None:
        asyncio.run(Catalog(home).enter("stock", "lanes:///a", 1))
        assert asyncio.run(Catalog(home).enter("stock", below(home, "stock"), 2)) == CatalogEntry("", 2)
        assert asyncio.run(Catalog(home).locate("stock")) == below(home, "stock")

    def test_a_database_and_a_machine_of_one_name_have_nothing_to_do_with_each_other(self, home: str) -> None:
        kinds: list[Kind] = ["databases", "workflows"]
        for number, kind in enumerate(kinds, 1):
            asyncio.run(Catalog(home).enter("order", f"lanes:///{kind}", number, kind=kind))
        for number, kind in enumerate(kinds, 1):
            assert asyncio.run(Catalog(home).entry("order", kind=kind)) == CatalogEntry(f"lanes:///{kind}", number)
            assert asyncio.run(Catalog(home).names(kind)) == {"order": CatalogEntry(f"lanes:///{kind}", number)}

    def test_no_secret_is_written_down_and_the_home_brings_its_own(self, home: str) -> None:
        url = "postgresql://u:secret@host/shop?schema=stock"
        asyncio.run(Catalog(home).enter("stock", url, 1))
        assert asyncio.run(Catalog(home).entry("stock")).url == "postgresql://u@host/shop?schema=stock"

    def test_of_many_who_enter_at_once_the_highest_epoch_wins_and_no_name_is_lost(self, home: str) -> None:
        async def enter() -> None:
            moves = [Catalog(home).enter("stock", f"lanes:///{epoch}", epoch) for epoch in (3, 1, 4, 2)]
            names = [Catalog(home).enter(f"name-{number}", f"lanes:///n{number}", 1) for number in range(4)]
            await asyncio.gather(*moves, *names)

        asyncio.run(enter())
        known = asyncio.run(Catalog(home).names())
        assert known["stock"] == CatalogEntry("lanes:///4", 4)
        assert sorted(known) == ["name-0", "name-1", "name-2", "name-3", "stock"]

    def test_names_are_any_text_and_listed_in_order(self, home: str) -> None:
        names = ["my stock", "É", "a-b", "z'; DROP TABLE x; --"]
        for name in names:
            asyncio.run(Catalog(home).enter(name, "lanes:///a", 1))
        assert list(asyncio.run(Catalog(home).names())) == sorted(names)

    @pytest.mark.parametrize("name", ["", "a/b", ".hidden", "x" * 101, "a\x00b", 7])
    def test_a_name_that_no_home_can_have_is_refused(self, home: str, name: str) -> None:
        for call in (Catalog(home).locate, Catalog(home).entry):
            with pytest.raises(BadUsage, match="not the name of a database"):
                asyncio.run(call(name))
        with pytest.raises(BadUsage, match="not the name of a database"):
            asyncio.run(Catalog(home).enter(name, "", 1))

    def test_a_catalog_that_cannot_be_read_is_an_error_and_nothing_is_guessed(
        self, home: str, spoil: Callable[[], object]
    ) -> None:
        asyncio.run(Catalog(home).enter("stock", "lanes:///a", 1))
        spoil()
        catalog = Catalog(home)
        with pytest.raises(CorruptionError, match="catalog"):
            asyncio.run(catalog.names())
        with pytest.raises(CorruptionError, match="catalog"):
            asyncio.run(catalog.locate("stock"))
        with pytest.raises(CorruptionError, match="catalog"):
            asyncio.run(catalog.enter("stock", "lanes:///b", 2))

    def test_workflows_live_at_the_home_until_they_are_moved(self, home: str, tmp_path: Path) -> None:
        assert asyncio.run(workflows_at(home, ["order", "refund"])) == home
        assert asyncio.run(workflows_at(home, [])) == home
        asyncio.run(Catalog(home).enter("order", f"lanes://{tmp_path}/else", 1, kind="workflows"))
        assert asyncio.run(workflows_at(home, ["order"])) == f"lanes://{tmp_path}/else"
        assert asyncio.run(workflows_at(home, ["refund"])) == home
        with pytest.raises(BadUsage, match=r"'order' live at .*else, and those of 'refund' at"):
            asyncio.run(workflows_at(home, ["order", "refund"]))
        asyncio.run(Catalog(home).enter("order", home, 2, kind="workflows"))
        assert asyncio.run(workflows_at(home, ["order", "refund"])) == home

    def test_all_workflows_of_a_home_may_live_elsewhere(self, home: str) -> None:
        asyncio.run(Catalog(home).enter(ALL, "postgresql://host/a", 1, kind="workflows"))
        assert asyncio.run(workflows_at(home, ["order", "refund"])) == "postgresql://host/a"
        assert asyncio.run(workflows_at(home, [])) == "postgresql://host/a"

"""Tiers of tests, chosen with `--tier`; without the option everything runs.

`make quick` runs the unit tests that need no server. `make test` runs every test that takes less than about a second,
with real servers, and of every longer group the first case, so that each guarantee is tested once. `make check`
runs the tier `test` and then `rest`, which is everything else.

Three markers. Two are set by measured durations: `slow` for a test that takes longer than about 0.8 s, and `campaign`
for a parametrized one of which `make test` runs the first case only. `second_server` is for the cases of a suite at a
further server with buckets: `make test` runs the suite at SeaweedFS, and at every server the contract that the suite
relies on (tests/integration/objects/test_contract.py).
"""

from pathlib import Path

import pytest

TIERS = ("quick", "test", "rest", "all")
QUICK_FOLDERS = ("tests/unit/", "tests/tidy/", "tests/typing/")
SERVERS = frozenset({"postgres_url", "postgres", "seaweedfs", "moto", "azurite", "redis", "redis_url"})
ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, default="all", help="which tests to run (default: all)")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.getoption("--tier")
    if tier == "all":
        return
    first: set[str] = set()
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        belongs = _is_fast(item, first)
        if tier == "quick":
            belongs = belongs and _needs_no_server(item)
        (kept if belongs != (tier == "rest") else left_out).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def _is_fast(item: pytest.Item, first: set[str]) -> bool:
    """Whether the test is part of `make test`; `first` remembers the campaigns that have their first case."""
    if item.get_closest_marker("slow") or item.get_closest_marker("second_server"):
        return False
    if not item.get_closest_marker("campaign"):
        return True
    name = item.nodeid.partition("[")[0]
    is_first = name not in first
    first.add(name)
    return is_first


def _needs_no_server(item: pytest.Item) -> bool:
    folder = item.path.relative_to(ROOT).as_posix()
    return folder.startswith(QUICK_FOLDERS) and not SERVERS & set(getattr(item, "fixturenames", ()))

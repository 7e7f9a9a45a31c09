"""The page on buckets has every option and every check, with the words that the code uses."""

import re
from pathlib import Path

from interlock.lanes.objectlog.bucket_protocol import Environment
from interlock.lanes.objectlog.probe import examine
from interlock.testing.lane_simulation.bucket import MemoryBucket
from interlock.urls import BUCKET_OPTIONS, BUCKET_SECRETS, PATH_BYTES_MAX

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "buckets.md").read_text()


def test_every_option_is_explained_and_no_other() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (all|`[a-z0-9]+`) \| (.*) \|$", PAGE, flags=re.MULTILINE)
    explained = {
        (scheme, name)
        for name, where, _ in rows
        for scheme in (BUCKET_OPTIONS if where == "all" else [where.strip("`")])
    }
    assert explained == {(scheme, name) for scheme, names in BUCKET_OPTIONS.items() for name in names}
    assert {name for name, _, meaning in rows if meaning.startswith("a secret")} == BUCKET_SECRETS
    assert f"at most {PATH_BYTES_MAX} bytes" in PAGE


def test_every_check_of_the_probe_is_explained_and_no_other() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|$", PAGE, flags=re.MULTILINE)
    checks = examine(MemoryBucket(), Environment())
    assert rows == [(check.code, check.promise) for check in checks]

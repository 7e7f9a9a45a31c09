"""Settings every test shares: how hard Hypothesis looks, and whether it looks the same way each time.

`default` explores anew on every run and remembers its failures; `ci` is deterministic, so that a red run is red
again; `proof` tries twenty times as many examples. Choose with HYPOTHESIS_PROFILE. A test that sets its own
`max_examples` opts out of the profiles: prefer none.

The servers with buckets and PostgreSQL are fixtures of all tests, so that no process ever starts one of them twice.

Breakers belong to the process: every test begins with all of them closed, or one that opens a breaker would hold up
another.
"""

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = (
    "tests.speed",
    "tests.limits",
    "tests.reaper",
    "tests.tiers",
    "tests.integration.objects.fixtures",
    "tests.integration.postgres.fixtures",
)

EXAMPLES = 100
PROOF_FACTOR = 20

# No deadline anywhere, and no complaint about slow drawing: how long an example takes says something about the machine,
# not about the code. The first draw of a fresh clone is the slow one: where nothing is cached in `.hypothesis` yet,
# Hypothesis parses every local module for constants and makes its table of all Unicode characters, a second or more on
# a busy machine, and would call the strategy too slow for it.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("default", UNHURRIED, max_examples=EXAMPLES)
settings.register_profile("ci", UNHURRIED, max_examples=EXAMPLES, derandomize=True, database=None, print_blob=True)
settings.register_profile("proof", UNHURRIED, max_examples=EXAMPLES * PROOF_FACTOR, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


@pytest.fixture(autouse=True)
def _breakers_closed() -> None:
    """As Interlock's own plugin does it, which is not loaded here. Nothing is imported for it."""
    outlets = sys.modules.get("interlock.engine.dependencies.outlet")
    if outlets is not None:
        outlets.forget_outlets()

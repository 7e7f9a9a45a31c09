"""Mutants of the helpers for hot rows, of the rule of isolation and of the advisor: D1, D5 to D8, D10, D15."""

from tests.mutation.mutant import Mutant

HOTROW = "interlock/hotrow"
PLANS = "interlock/postgres/isolation.py"
COUNTERS = f"{HOTROW}/counters.py"
STOCK = f"{HOTROW}/stock.py"
BALANCES = f"{HOTROW}/balances.py"
RULE = f"{HOTROW}/placement_advice.py"

PLAN_TESTS = ("tests/unit/postgres/test_isolation.py",)
COUNTER_TESTS = ("tests/conformance/hotrow/test_counters.py", "-k", "memory")
LOG_TESTS = ("tests/conformance/hotrow/test_counters_log.py", "-k", "memory")
STOCK_TESTS = (
    "tests/conformance/hotrow/test_stock.py",
    "tests/conformance/hotrow/test_reservations.py",
    "-k",
    "memory",
)
BALANCE_TESTS = ("tests/conformance/hotrow/test_balances.py", "-k", "memory")
ADVICE_TESTS = (
    "tests/unit/hotrow/placement_advice/test_workloads.py",
    "tests/unit/hotrow/placement_advice/test_rule.py",
)

COUNTING = (
    Mutant(
        "a subquery is taken for simple",
        PLANS,
        '"SubLink", "RangeSubselect"',
        '"RangeSubselect"',
        "D1: a subquery keeps what it saw before the row was waited for.",
        PLAN_TESTS,
    ),
    Mutant(
        "unknown functions are taken for simple",
        PLANS,
        "    known = name in _SIMPLE if",
        "    known = True if",
        "D1: a function of the user may hide a query.",
        PLAN_TESTS,
    ),
    Mutant(
        "more is taken than there is",
        STOCK,
        'sold = sold + $2 WHERE name = $1 AND available >= $2"\nGIVE_BACK',
        'sold = sold + $2 WHERE name = $1 AND available >= 0"\nGIVE_BACK',
        "D8: never oversold.",
        STOCK_TESTS,
    ),
    Mutant(
        "a take is not counted as sold",
        STOCK,
        "SET available = available - $2, sold = sold + $2 WHERE name = $1 AND available",
        "SET available = available - $2 WHERE name = $1 AND available",
        "D8: what was added is available, reserved or sold.",
        STOCK_TESTS,
    ),
    Mutant(
        "a reservation that is over is confirmed",
        STOCK,
        "AND name = $2 AND expires_at > now() RETURNING quantity",
        "AND name = $2 RETURNING quantity",
        "Units that went back must not be sold a second time.",
        STOCK_TESTS,
    ),
    Mutant(
        "a withdrawal does not look",
        BALANCES,
        "SET value = value - $2 WHERE name = $1 AND value >= $3",
        "SET value = value - $2 WHERE name = $1",
        "D15: never below its limit.",
        BALANCE_TESTS,
    ),
    Mutant(
        "a shard is set instead of added to",
        COUNTERS,
        "ON CONFLICT (name, shard) DO UPDATE SET n = hotrow_counter_shard.n + excluded.n",
        "ON CONFLICT (name, shard) DO UPDATE SET n = excluded.n",
        "D5: no add is lost.",
        COUNTER_TESTS,
    ),
    Mutant(
        "a roll-up forgets what was rolled up before",
        COUNTERS,
        "ON CONFLICT (name) DO UPDATE SET n = hotrow_counter_snapshot.n + excluded.n",
        "ON CONFLICT (name) DO UPDATE SET n = excluded.n",
        "D6: read = snapshot + tail.",
        LOG_TESTS,
    ),
    Mutant(
        "a roll-up takes the entries of others",
        COUNTERS,
        "(SELECT id FROM hotrow_counter_event WHERE name = $1 ORDER BY id LIMIT $2) RETURNING delta",
        "(SELECT id FROM hotrow_counter_event ORDER BY id LIMIT $2) RETURNING delta",
        "D6: each counter has its own log.",
        LOG_TESTS,
    ),
    Mutant(
        "a busy row is moved whoever waits for it",
        RULE,
        "    coupled = tool.latency_critical and _is_better(",
        "    coupled = _is_better(",
        "D10: only what is latency-critical is coupled.",
        ADVICE_TESTS,
    ),
    Mutant(
        "what is affordable is moved all the same",
        RULE,
        "found.lane_ratio) <= limits.pressure:\n",
        "found.lane_ratio) < 0:\n",
        "D10: within the budget and the plateau it stays.",
        ADVICE_TESTS,
    ),
)

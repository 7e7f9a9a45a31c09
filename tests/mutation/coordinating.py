"""Mutants of what a cluster shares through Redis: leases, limits, breakers, and what is done without it."""

from tests.mutation.mutant import Mutant

COORDINATION = "interlock/redis"
SCRIPTS, LEASES = f"{COORDINATION}/connection.py", f"{COORDINATION}/shared_leases.py"
TOKENS = SHARED = f"{COORDINATION}/cluster_breakers.py"
OUTLETS = "interlock/engine/dependencies/outlet.py"

REAL = "tests/integration/redis/test_leases.py"
CONTRACT = (f"{REAL}::test_the_contract_of_a_keeper_is_kept",)
WITHOUT = (f"{REAL}::test_an_engine_opens_without_redis_and_joins_it_when_it_comes",)
LIMITS = ("tests/unit/redis/test_token_bucket.py",)
BREAKERS = ("tests/unit/redis/test_cluster_breakers.py",)
TURNS = ("tests/unit/engine/dependencies/test_cluster_permits.py",)

COORDINATING = [
    Mutant(
        "lease renewed without its fence",
        SCRIPTS,
        "if not found[1] or found[2] ~= ARGV[2] or found[3] ~= ARGV[3] then return 0 end\n",
        "if not found[1] then return 0 end\n",
        "C10, G4: a former holder must not have it again.",
        CONTRACT,
    ),
    Mutant(
        "lease released by anybody",
        SCRIPTS,
        "if found[1] ~= ARGV[2] or found[2] ~= ARGV[3] then return 0 end\n",
        "",
        "C10, G4: a former holder must not take it away from the next.",
        CONTRACT,
    ),
    Mutant(
        "renewal ignores the loss",
        LEASES,
        "            self._known[name] = _now_s() + lease_s\n        return answer == 1\n",
        "            self._known[name] = _now_s() + lease_s\n        return True\n",
        "C10: the holder is told.",
        CONTRACT,
    ),
    Mutant(
        "lease without a fallback",
        LEASES,
        "            if self.several:\n",
        "            if self.several or not self._link.up:\n",
        "C10: without Redis leases come from the store.",
        WITHOUT,
    ),
    Mutant(
        "limit without a fallback",
        TOKENS,
        "        return self._shared\n",
        "        return True\n",
        "C7: without Redis the limit is that of the process.",
        LIMITS,
    ),
    Mutant(
        "bucket is never paid back",
        TOKENS,
        "back = self._here if self._here < 0 else 0 if keep is None else max(0, self._here - keep)",
        "back = 0 if self._here < 0 or keep is None else max(0, self._here - keep)",
        "C7: a burst that was borrowed is the cluster's.",
        LIMITS,
    ),
    Mutant(
        "refused meanwhile and not told",
        TOKENS,
        "                if refused:\n                    self._stir()\n",
        "",
        "C8: who waits is called when there is a token.",
        LIMITS,
    ),
    Mutant(
        "probe without a fallback",
        SHARED,
        "            if not self._link.up:\n                return True\n",
        "            if not self._link.up:\n                return False\n",
        "C4: without Redis the breaker is that of the process.",
        BREAKERS,
    ),
    Mutant(
        "each word waits for a silent Redis",
        SHARED,
        "            if self._link.up:\n                await self._send(",
        "            if self._reporting:\n                await self._send(",
        "Closing is bounded, however much was to be said.",
        BREAKERS,
    ),
    Mutant(
        "unused permit is kept",
        SHARED,
        "        if unused:\n            await self._abandon(unused)\n",
        "",
        "C4: the others must not wait for a probe that nobody makes.",
        BREAKERS,
    ),
    Mutant(
        "probe without a permit is forgotten",
        OUTLETS,
        "            waits.append(PERMIT_S)\n",
        "            pass\n",
        "C4: nobody would call it again.",
        TURNS,
    ),
    Mutant(
        "probe without a permit spins",
        OUTLETS,
        '        if verdict == "probe" and self.others is not None and self.others.up:\n',
        '        if verdict == "probe" and self.others is None:\n',
        "C4: it costs nothing while it waits.",
        TURNS,
    ),
]

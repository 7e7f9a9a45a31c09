"""The tests can fail: a statement that is broken in one place is caught by one of them."""

import re
from collections.abc import Callable, Sequence

import pytest

from interlock.errors import InterlockError
from interlock.store.postgres import statement, store
from interlock.store.postgres.statement import group_statement
from interlock.store.records import Change
from tests.integration.postgres import test_claims, test_readable, test_settling, test_traps

SOON = "statement_timeout_s=0.5"
"""For what would wait for ever."""

Sabotage = Callable[[pytest.MonkeyPatch], None]


def instead(old: str, new: str) -> Sabotage:
    """Every grouped statement with another text in one place, which is told by a pattern."""

    def sabotage(patch: pytest.MonkeyPatch) -> None:
        def broken(schema: str, parts: statement.GroupParts) -> str:
            text = group_statement(schema, parts)
            assert re.search(old, text) or not parts.moves
            return re.sub(old, new, text)

        patch.setattr(statement, "group_statement", broken)

    return sabotage


def claims_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    made = store.ClaimQueries.__init__

    def careless(self: store.ClaimQueries, schema: str) -> None:
        made(self, schema)
        lease = "lease_until = now() + $4 * interval '1 second'"
        assert lease in self.claim
        self.claim = self.claim.replace(lease, "lease_until = NULL + $4 * interval '1 second'")

    patch.setattr(store.ClaimQueries, "__init__", careless)


def settled_as(happened: Callable[[Sequence[Change]], set[str]]) -> Sabotage:
    """Whatever the database says, an unknown outcome is this."""

    async def settle(_: store.OutcomeResolver, changes: Sequence[Change], envelope: str) -> set[str]:
        del envelope
        return happened(changes)

    return lambda patch: patch.setattr(store.OutcomeResolver, "settle", settle)


def claims_with_the_same_token(patch: pytest.MonkeyPatch) -> None:
    made = store.ClaimQueries.__init__

    def careless(self: store.ClaimQueries, schema: str) -> None:
        made(self, schema)
        self.claim = self.claim.replace("lease_token = w.lease_token + 1", "lease_token = w.lease_token")

    patch.setattr(store.ClaimQueries, "__init__", careless)


SABOTAGES: list[tuple[str, Sabotage, Callable[[str], None]]] = [
    (
        "history for losers",
        instead(r"FROM moved\)\) IS TRUE", "FROM moved)) IS NOT NULL OR true"),
        test_traps.test_losers_leave_neither_history_nor_effects_nor_letters,
    ),
    (
        "no look at the revision",
        instead(r"w\.revision = \w\.expected", "true"),
        test_traps.test_losers_leave_neither_history_nor_effects_nor_letters,
    ),
    (
        "whoever is locked is waited for",
        instead(" SKIP LOCKED", ""),
        lambda url: test_traps.test_an_open_transaction_of_a_caller_blocks_nobody_else(f"{url}&{SOON}"),
    ),
    (
        "whoever refers to a workflow holds it",
        instead("FOR NO KEY UPDATE OF w", "FOR UPDATE OF w"),
        test_traps.test_a_foreign_key_to_a_workflow_does_not_make_it_lose,
    ),
    ("claims without a lease", claims_without_a_lease, test_claims.test_two_claimers_never_get_the_same_workflow),
    (
        "claims with the same token",
        claims_with_the_same_token,
        test_claims.test_a_lease_that_is_over_is_claimed_again_with_a_higher_token,
    ),
    (
        "whatever is unknown has happened",
        settled_as(lambda changes: {change.row.id for change in changes}),
        test_settling.test_each_change_of_a_group_is_settled_for_itself,
    ),
    (
        "whatever is unknown has not happened",
        settled_as(lambda _: set()),
        test_settling.test_each_change_of_a_group_is_settled_for_itself,
    ),
    (
        "letters as JSONB has them",
        instead("context_written = l.context_written", "context_written = NULL"),
        lambda url: test_readable.test_the_engine_gets_back_every_letter_that_it_wrote(url, b'{"b":1,"a":2}'),
    ),
]


@pytest.mark.parametrize(("sabotage", "test"), [each[1:] for each in SABOTAGES], ids=[name for name, _, _ in SABOTAGES])
def test_sabotage_is_caught(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, sabotage: Sabotage, test: Callable[[str], None]
) -> None:
    """G1, G3, G4: what the same test says of a sound statement is green in its own module."""
    sabotage(monkeypatch)
    with pytest.raises((AssertionError, InterlockError)):
        test(postgres_url)

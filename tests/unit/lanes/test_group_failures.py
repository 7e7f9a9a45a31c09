"""Works that end their group cost the others one more run, however many there are (G6)."""

from pathlib import Path

import pytest

from interlock.errors import TransactionError, UnavailableError
from interlock.lanes.writer import PASSES_MAX, Session, Work
from tests.unit.lanes.lanes import count, group, make_counter, opened, rows, run, sql

MANY = 40
UP = "UPDATE counter SET n = n + 1 WHERE id = 1"
VANISHES = "INSERT OR ROLLBACK INTO counter VALUES (1, 7)"


class Counted:
    """A work that notes its runs."""

    def __init__(self, text: str, *, single: bool = False, fails: bool = False) -> None:
        self.runs = 0
        self._text, self._fails = text, fails
        self.work = Work(self._function, single=single)

    def _function(self, session: Session) -> object:
        self.runs += 1
        changed = session.execute(self._text)
        if self._fails:
            raise ValueError("behind the statement")
        return changed


CULPRITS = {
    "fails behind the statement": lambda: Counted(UP, single=True, fails=True),
    "leaves a deferred foreign key": lambda: Counted("INSERT INTO child VALUES (99)", single=True),
    "ends the group": lambda: Counted(VANISHES),
    "ends the group, single": lambda: Counted(VANISHES, single=True),
}


@pytest.mark.parametrize("kind", CULPRITS)
def test_many_culprits_cost_the_others_one_more_run(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        with opened(tmp_path / "x") as lane:
            await make_counter(lane)
            await lane.run(sql("CREATE TABLE child (id INTEGER REFERENCES counter (id) DEFERRABLE INITIALLY DEFERRED)"))
            culprits = [CULPRITS[kind]() for _ in range(MANY)]
            others = [Counted(UP, single=number % 2 == 0) for number in range(MANY)]
            both = [each for pair in zip(others, culprits, strict=True) for each in pair]
            answers = await group(lane, *(each.work for each in both))
            assert answers[::2] == [1] * MANY
            assert all(isinstance(answer, Exception) for answer in answers[1::2])
            assert max(each.runs for each in both) <= 2
            assert await count(lane) == MANY
            assert await lane.run(rows("SELECT count(*) FROM child")) == [(0,)]

    run(scenario)


def test_works_that_end_the_group_again_and_again_do_so_only_a_few_times(tmp_path: Path) -> None:
    """Each of them ends the group only after those before it have: every pass finds one more."""

    class Late(Counted):
        def __init__(self, number: int) -> None:
            super().__init__(VANISHES)
            self.number = number

        def _function(self, session: Session) -> object:
            if self.runs < self.number:
                self.runs += 1
                return None
            return super()._function(session)

    async def scenario() -> None:
        with opened(tmp_path / "x") as lane:
            await make_counter(lane)
            good = Counted(UP)
            late = [Late(number) for number in range(PASSES_MAX + 5)]
            answers = await group(lane, good.work, *(each.work for each in late))
            assert good.runs == PASSES_MAX
            assert isinstance(answers[0], UnavailableError)
            assert "did not happen" in answers[0].what
            assert all(isinstance(answer, TransactionError) for answer in answers[1 : PASSES_MAX + 1])
            assert all(isinstance(answer, UnavailableError) for answer in answers[PASSES_MAX + 1 :])
            assert await count(lane) == 0
            assert await lane.run(Counted(UP).work) == 1, "the lane goes on"

    run(scenario)

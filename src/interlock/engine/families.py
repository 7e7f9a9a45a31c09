"""Workflows that work together: the start, the count, the cancellation and the undo of children, and messages.

The engine itself is the step that starts children, their undo, and the effect that delivers messages. So all of them
have the durability of a user's step: owed with the commit, begun after it, retried with the same key, dead letters.

A child starts with an id that its parent determines, so a repeated start finds it. Its end is a record written with its
own last commit. `Families` counts the records of a parent in groups: with one change of the parent's row, in which the
join is decided too. The records are in a table of their own, so neither the row nor memory grows with their number.

Sections: children; counting; cancellation and undo; messages; calls of steps.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Protocol, cast

from interlock.core.declarations import ChildrenDeclaration, EffectDeclaration
from interlock.core.events import Event, wire_name
from interlock.core.policies import Retry
from interlock.core.table import name_of
from interlock.core.values import Child, ChildResult, StepContext
from interlock.core.values import Send as Message
from interlock.engine.bound_machine import (
    AnyMachine,
    BoundMachine,
    Effect,
    FamilyRun,
    LoadedWorkflow,
    ParentRef,
    decode_owed,
    event_text,
)
from interlock.engine.path.caller_commands import ID_CHARACTERS_MAX, Start, check_id, no_letter
from interlock.engine.path.commit_pipeline import CommitPipeline, machine_of
from interlock.engine.path.engine_commands import EndsCounted, count_ends, family_of, holding
from interlock.engine.path.staged_group import Staged, cancel_effect
from interlock.engine.views import Moved, Refused, View
from interlock.errors import (
    CorruptionError,
    InterlockError,
    InvalidTransition,
    MachineMismatch,
    NonRetryable,
    Overloaded,
    RequestError,
    Retryable,
    RetryAfter,
    UnavailableError,
    WorkflowExists,
)
from interlock.redaction import logger_of
from interlock.store.protocol import Store
from interlock.store.records import COUNTED, LIVING, ChildRecord, Letter, Row

log = logger_of("interlock.families")

CHILDREN_MAX = 200_000
"""G6: children of one visit of a state."""

RESULTS_MAX = 1_000
"""G6: results of children that the action of a join gets."""

MESSAGES_MAX = 10_000
"""G6: messages that one visit of a state owes."""

PIECE = 500
"""Children that are started, counted or cancelled together."""

PARENTS_TOGETHER = 32
"""Parents whose children are counted concurrently."""

SWEEP_S = 5.0
"""Seconds between two searches of a shared store for ends that no process counts: the one that committed them died."""

UNDO_POLL_S = 0.5
"""Seconds after which an undo looks again whether the cancelled children have ended."""

DELIVERY = Retry(attempts=1_000, first_s=0.1, max_s=60)
"""Of the effect that cancels children. A refusal is a dead letter immediately."""


class WorkflowCalls(Protocol):
    """The calls of an engine that other workflows are reached by."""

    async def start(self, machine: AnyMachine, workflow: str, context: object, /) -> View[Any, Any]:
        """Start a workflow."""
        ...

    async def send(self, workflow: str, event: Event, /, *, key: str | None = None) -> Moved[Enum]:
        """Send an event."""
        ...

    async def send_many(self, items: Iterable[tuple[str, Event, str | None]], /) -> list[Moved[Enum] | Refused]:
        """Send many events."""
        ...


class Families:
    """The children and messages of one engine. Lives in its event loop."""

    def __init__(self, store: Store, pipeline: CommitPipeline, machines: dict[str, BoundMachine]) -> None:
        self._store = store
        self._pipeline = pipeline
        self._machines = machines
        self._engine: WorkflowCalls
        self._entered = asyncio.Event()
        self._due: dict[str, None] = {}
        """Parents with ends to count."""
        self._counting: asyncio.Task[None] | None = None
        self._closed = False
        self.used = any(bound.table.has_children for bound in machines.values())
        for bound in machines.values():
            self._attach(bound)

    def enter(self, engine: WorkflowCalls) -> None:
        """Use the calls of this engine."""
        self._engine = engine
        self._entered.set()

    async def _calls(self) -> WorkflowCalls:
        """Return the engine as soon as it is open: what was owed may begin before."""
        await self._entered.wait()
        return self._engine

    def _attach(self, bound: BoundMachine) -> None:
        """Make the engine the strategy of the machine's children and messages."""
        for name, node in bound.table.steps.items():
            if node.step is not None and node.step.children is not None:
                bound.steps[name] = self._starting(bound, node.step.children)
                bound.effects[cancel_effect(name)] = Effect(self._cancelling(node.step.children), 3_600.0, DELIVERY)
                for undo in node.step.undos:
                    bound.undos[name, undo.name] = self._undoing(node.step.children)
        for declared in bound.table.declared.effects:
            if declared.sends is not None:
                known = bound.effects[declared.name]
                bound.effects[declared.name] = Effect(
                    self._sending(bound, declared), known.timeout_s, known.retry, known.dependency, known.state
                )

    # --- children ------------------------------------------------------------------------------------------------

    def _starting(self, bound: BoundMachine, children: ChildrenDeclaration) -> Callable[..., Awaitable[int]]:
        async def start(context: object, ctx: StepContext) -> int:
            of = self._machine_of(children, ctx.workflow)
            what = f"children {name_of(children.function)} of {bound.name!r}, for workflow {ctx.workflow!r},"
            total, names = 0, set[int]()
            # Everything is checked before the first child starts: a mistake starts no child.
            for child in _evaluated(children.function, context, what, Child, CHILDREN_MAX, "children"):
                _check_child(child, ctx.workflow, what, names)
                total += 1
                if total % PIECE == 0:
                    await asyncio.sleep(0)
            del names
            parent = await self._load(ctx.workflow)
            trace = "" if parent is None else parent.owed.trace
            piece: list[Start] = []
            children_again = _evaluated(children.function, context, what, Child, CHILDREN_MAX, "children")
            for position, child in enumerate(children_again):
                birth = ParentRef(ctx.workflow, ctx.visit, position)
                try:
                    piece.append(Start(of, f"{ctx.workflow}.{child.name}", child.context, birth, trace=trace))
                except RequestError as error:
                    problem = f"returned a child {child.name!r} that cannot be started: {error.what}"
                    raise _mistake(what, problem) from error
                if len(piece) == PIECE:
                    await self._start(piece, children, ctx)
                    piece = []
            await self._start(piece, children, ctx)
            await self._refuse_left(children, ctx)
            return total

        return start

    async def _start(self, piece: list[Start], children: ChildrenDeclaration, ctx: StepContext) -> None:
        """Start some children; stop when the parent has left the state meanwhile."""
        if not piece:
            return
        await self._refuse_left(children, ctx)
        futures = [self._pipeline.admit(each) for each in piece]
        try:
            await asyncio.wait(futures)
        except asyncio.CancelledError:
            # The attempt ends after its starts: an undo begins then, and must find these children.
            await asyncio.wait(futures)
            with contextlib.suppress(InterlockError, Retryable):
                await self._refuse_left(children, ctx)
            raise
        failures = [error for each in futures if (error := each.exception()) is not None]
        for error in failures:
            if isinstance(error, WorkflowExists):
                raise NonRetryable(f"{error.what} {error.fix}") from error
            raise error

    async def _refuse_left(self, children: ChildrenDeclaration, ctx: StepContext) -> None:
        """Raise Retryable when the parent has left the state, and cancel the children that have started.

        It may have left by another process, whose cancellation did not see the children that started meanwhile.
        """
        live = await self._load(ctx.workflow)
        if live is not None and live.snapshot.visit == ctx.visit:
            return
        if children.leave == "cancel":
            async for page in self._pages(ctx.workflow, ctx.visit):
                await self._send_cancel([each for each in page if each.stage == LIVING], children, ctx)
        raise Retryable(f"workflow {ctx.workflow!r} has left the state.")

    def _machine_of(self, children: ChildrenDeclaration, parent: str) -> BoundMachine:
        bound = self._machines.get(children.of.name)
        if bound is None or cast("object", bound.machine) is not children.of:
            raise Retryable(
                f"the children of {parent!r} are of the machine {children.of.name!r}, which this engine does not have: "
                "open it with both machines."
            )
        return bound

    # --- counting ------------------------------------------------------------------------------------------------

    def durable(self, staged: Staged) -> None:
        """Count the ends that a durable change has reported, and those of a family that has just been started."""
        for child in staged.children:
            if child.stage not in {LIVING, COUNTED}:
                self.poke(child.parent)
        run = staged.live.owed.run
        if run is not None and run.family is not None:
            before = staged.before.run
            if before is None or before.family is None:
                self.poke(staged.live.row.id)

    def poke(self, parent: str) -> None:
        """Count the ended children of a workflow soon."""
        self._due[parent] = None
        if self._counting is None and not self._closed:
            self._counting = asyncio.get_running_loop().create_task(self._count_due())

    async def sweep(self) -> None:
        """Find the parents of ends that were not counted."""
        after = ""
        while parents := await self._store.parents_to_count(after=after, limit=PIECE):
            for parent in parents:
                self.poke(parent)
            after = parents[-1]

    async def revisit(self) -> None:
        """Ask the joins of families that have ended again: this release may have corrected a condition."""
        try:
            await self._revisit()
        except InterlockError as error:  # The next engine that opens repeats it.
            log.warning("the joins of families that have ended cannot be asked now: %s", error.what)

    async def _revisit(self) -> None:
        waiting = [
            (bound.name, state)
            for bound in self._machines.values()
            for state, node in bound.stored.items()
            if node.step is not None and node.step.children is not None
        ]
        for machine, state in waiting:
            cursor: str | None = None
            while True:
                found = await self._store.find(machine, state, after=cursor, limit=PIECE)
                for row in found.rows:
                    run = decode_owed(row.owed).run
                    if run is not None and run.family is not None and run.family.ended >= run.family.total:
                        self.poke(row.id)
                cursor = found.cursor
                if cursor is None:
                    break

    async def retry(self, letter: Letter) -> bool:
        """Ask the joins again, in the commit that removes the dead letter of one. Return False for another letter.

        In one commit: no ends are left to count, so nothing would ask them again after a crash.
        """
        live = await self._load(letter.workflow) if letter.kind == "step" else None
        if live is None or live.owed.letter != letter.id or live.owed.run is None or live.owed.run.family is None:
            return False
        await self._count(letter.workflow, letter.id)
        return True

    async def sweep_always(self) -> None:
        """Repeat that, where other processes may have died."""
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.sweep()
            except InterlockError as error:
                log.warning("ended children cannot be looked for now: %s", error.what)
            except Exception:
                log.exception("ended children cannot be looked for now")

    async def close(self) -> None:
        """Stop counting. What is not counted is found by the next engine."""
        self._closed = True
        task = self._counting
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _count_due(self) -> None:
        try:
            while self._due:
                parents = list(self._due)[:PARENTS_TOGETHER]
                for parent in parents:
                    del self._due[parent]
                await asyncio.gather(*map(self._count_safely, parents))
        finally:
            self._counting = None

    async def _count_safely(self, parent: str) -> None:
        try:
            await self._count(parent)
        except UnavailableError as error:
            # The ends are in the store. This engine is closing, or finds them when the store is back.
            log.info("the children of workflow %r are counted later: %s", parent, error.what)
            if not self._closed and self._pipeline.dead is None and not isinstance(error, MachineMismatch):
                asyncio.get_running_loop().call_later(SWEEP_S, self.poke, parent)
        except InterlockError as error:
            log.error("the children of workflow %r cannot be counted: %s", parent, error.what)  # noqa: TRY400
        except Exception:
            log.exception("the children of workflow %r cannot be counted", parent)

    async def _count(self, parent: str, letter: str = "") -> None:
        """Count ends until there are no more, or the parent is not ready for them.

        With a dead letter of a join, raises WorkflowNotFound if the parent no longer has it.
        """
        results_wanted = False
        first = True
        while True:
            live = await self._load(parent)
            if live is None or (letter and live.owed.letter != letter):
                break
            run = live.owed.run
            node = live.bound.table.nodes[live.snapshot.state._name_]
            starting = (
                run is not None and run.family is None and node.step is not None and node.step.children is not None
            )
            family = None if run is None else run.family
            ends = await self._store.ended_children(parent, limit=PIECE * 2)
            if starting:
                # They are counted when all are started; ends of an earlier visit are only marked.
                ends = [each for each in ends if each.visit != live.snapshot.visit]
            if not ends and not letter and not (first and family is not None and _may_hold(live, family)):
                break
            results = None
            if family is not None:
                after = count_ends(family, [each for each in ends if each.visit == live.snapshot.visit])
                if results_wanted or _may_hold(live, after):
                    results = await self._results(live, parent, PIECE * 2)
            counted = 0 if family is None else family.ended
            visit = live.snapshot.visit
            answer = await self._pipeline.admit(EndsCounted(parent, visit, tuple(ends), counted, results, letter))
            results_wanted = answer == "results"
            first = results_wanted or answer == "stale"
            letter = letter if first else ""
        if letter:
            raise no_letter(letter)

    async def _results(self, live: LoadedWorkflow, parent: str, page: int) -> tuple[ChildResult, ...]:
        """Load the first ended children of the visit, with their contexts."""
        found: list[ChildResult] = []
        after: ChildRecord | None = None
        visit = live.snapshot.visit
        while len(found) < RESULTS_MAX:
            records = await self._store.children(parent, visit=visit, after=after, limit=page)
            ended = [each for each in records if each.stage != LIVING][: RESULTS_MAX - len(found)]
            rows = await self._store.load([each.id for each in ended]) if ended else {}
            found += [
                result
                for each in ended
                if each.id in rows and (result := self._result(rows[each.id], each)) is not None
            ]
            if len(records) < page:
                break
            after = records[-1]
        return tuple(found)

    def _result(self, row: Row, record: ChildRecord) -> ChildResult | None:
        """Return the result of a child; None for a damaged one. Raises UnavailableError if another engine can read it.

        The parent must not move without the results of such children.
        """
        try:
            child = machine_of(row, self._machines).live(row)
        except CorruptionError as error:
            log.error("child %r is left out of the results of %r: %s", row.id, record.parent, error.what)  # noqa: TRY400
            return None
        return ChildResult(
            id=row.id,
            name=row.id.removeprefix(f"{record.parent}."),
            state=child.bound.node_of(record.state).state,
            context=child.lend_context(),
        )

    async def _load(self, workflow: str) -> LoadedWorkflow | None:
        """Return the durable workflow: from memory where that is current, else from the store."""
        live = self._pipeline.known(workflow)
        if live is None:
            row = (await self._store.load([workflow])).get(workflow)
            live = None if row is None else machine_of(row, self._machines).live(row)
        return live

    # --- cancellation and undo -----------------------------------------------------------------------------------

    def _cancelling(self, children: ChildrenDeclaration) -> Callable[..., Awaitable[None]]:
        async def cancel(context: object, ctx: StepContext) -> None:
            """Send the cancel event to the living children of a state that was left."""
            del context
            refused: list[str] = []
            async for page in self._pages(ctx.workflow, ctx.visit):
                living = [each for each in page if each.stage == LIVING]
                refused += await self._send_cancel(living, children, ctx)
            _demand_cancelled(refused, ctx)

        return cancel

    def _undoing(self, children: ChildrenDeclaration) -> Callable[..., Awaitable[None]]:
        async def undo(context: object, done: object, ctx: StepContext) -> None:
            """Cancel the children of the visit, newest first, and wait until each has ended again."""
            del context, done
            live = await self._load(ctx.workflow)
            if live is None or not live.owed.undos:
                return
            visit = live.owed.undos[0].visit
            refused: list[str] = []
            busy = 0
            async for page in self._pages(ctx.workflow, visit):
                refused += await self._send_cancel(page, children, ctx)
            _demand_cancelled(refused, ctx)
            async for page in self._pages(ctx.workflow, visit):
                rows = await self._store.load([each.id for each in page])
                busy += sum(row.active for row in rows.values())
            if busy:
                raise RetryAfter(UNDO_POLL_S, f"{busy} children of workflow {ctx.workflow!r} are being undone.")

        return undo

    async def _pages(self, parent: str, visit: int) -> AsyncIterator[list[ChildRecord]]:
        after: ChildRecord | None = None
        while page := await self._store.children(parent, visit=visit, after=after, limit=PIECE, newest_first=True):
            yield page
            after = page[-1]

    async def _send_cancel(
        self, records: list[ChildRecord], children: ChildrenDeclaration, ctx: StepContext
    ) -> list[str]:
        """Send the cancel event to these children; return why some refused it, though they have a transition for it."""
        if not records or children.cancel is None:
            return []
        rows = await self._store.load([each.id for each in records])
        items: list[tuple[str, Event, str | None]] = []
        for each in records:
            row = rows.get(each.id)
            if row is not None and row.machine == children.of.name:
                items.append((each.id, children.cancel, f"cancel.{each.parent}.{each.visit}"[:ID_CHARACTERS_MAX]))
        refused: list[str] = []
        for (child, _, _), answer in zip(items, await (await self._calls()).send_many(items), strict=True):
            if not isinstance(answer, Refused) or isinstance(answer.error, InvalidTransition):
                continue  # A child that has no transition for it goes on, or has ended for good.
            if isinstance(answer.error, UnavailableError | Overloaded):
                raise Retryable(f"child {child!r} of {ctx.workflow!r} cannot be reached: {answer.error.what}")
            refused.append(
                f"child {child!r} of workflow {ctx.workflow!r} refused its cancellation: {answer.error.what}"
            )
        return refused

    # --- messages ------------------------------------------------------------------------------------------------

    def _sending(self, bound: BoundMachine, declared: EffectDeclaration) -> Callable[..., Awaitable[None]]:
        assert declared.sends is not None
        function = declared.sends

        async def deliver(context: object, ctx: StepContext) -> None:
            """Deliver the messages of one visit. Their keys do not depend on the order in which they are returned."""
            what = f"sends {name_of(function)} of {bound.name!r}, for workflow {ctx.workflow!r},"
            messages = list(_evaluated(function, context, what, Message, MESSAGES_MAX, "messages"))
            refused: list[str] = []
            equal: dict[str, int] = {}
            for begin in range(0, len(messages), PIECE):
                items: list[tuple[str, Event, str | None]] = []
                for each in messages[begin : begin + PIECE]:
                    digest = self._digest(each.id, each.event)
                    equal[digest] = number = equal.get(digest, 0) + 1
                    items.append((each.id, each.event, _key_of(ctx, f"{digest}.{number}")))
                refused += await self._deliver(items, ctx)
            if refused:
                reasons = "; ".join(refused[:3])
                more = f"; and {len(refused) - 3} more" if len(refused) > 3 else ""  # noqa: PLR2004 -- as shown.
                raise NonRetryable(f"{reasons}{more}")

        return deliver

    async def _deliver(self, items: list[tuple[str, Event, str | None]], ctx: StepContext) -> list[str]:
        refused: list[str] = []
        for (target, event, _), answer in zip(items, await (await self._calls()).send_many(items), strict=True):
            if not isinstance(answer, Refused):
                continue
            if isinstance(answer.error, UnavailableError | Overloaded):
                raise Retryable(f"workflow {target!r} cannot be reached: {answer.error.what}")
            name = event_text(event) if isinstance(cast("object", event), Event) else repr(event)
            refused.append(
                f"{name} from workflow {ctx.workflow!r} to workflow {target!r} was refused: {answer.error.what}"
            )
        return refused

    # --- calls of steps ------------------------------------------------------------------------------------------

    async def send(self, ctx: StepContext, workflow: str, event: Event) -> None:
        """Send an event for a step: the delivery key is the run's key and a digest of the message."""
        key = _key_of(ctx, self._digest(workflow, event))
        try:
            await (await self._calls()).send(workflow, event, key=key)
        except RequestError as error:
            name = event_text(event) if isinstance(cast("object", event), Event) else repr(event)
            _name_both(error, f"{name} from workflow {ctx.workflow!r} to workflow {workflow!r} was refused")
            raise

    def _digest(self, workflow: str, event: Event) -> str:
        """Return the digest of a message, by the stored form of its event: its repr() may leave out fields."""
        alphabets = ((bound, bound.table.declared.alphabet) for bound in self._machines.values())
        data = b""
        with contextlib.suppress(RequestError):  # The delivery refuses such an event, and says why.
            data = next(
                (bound.codec.encode_event(event) for bound, alphabet in alphabets if isinstance(event, alphabet)), b""
            )
        message = f"{workflow}\0{wire_name(type(event))}\0".encode("utf-8", "replace") + data
        return hashlib.blake2b(message, digest_size=12).hexdigest()

    async def start(self, ctx: StepContext, machine: object, workflow: str, context: object) -> None:
        """Start a workflow for a step. A repeated start finds it by its id."""
        calls = await self._calls()
        try:
            await calls.start(cast("AnyMachine", machine), workflow, context)
        except RequestError as error:
            _name_both(error, f"the start of workflow {workflow!r} by workflow {ctx.workflow!r} was refused")
            raise


def _may_hold(live: LoadedWorkflow, family: FamilyRun) -> bool:
    """Return whether a join holds, or fails."""
    return holding(live, family_of(live, family, ())) is not False


def _evaluated(
    function: Callable[[Any], Iterable[Any]], context: object, what: str, kind: type[Any], most: int, things: str
) -> Iterator[Any]:
    """Yield what a user's function returns. Raises NonRetryable for an exception, a wrong type, or too many."""
    values = _guarded(function, context, what)
    for count, value in enumerate(values, 1):
        if not isinstance(value, kind):
            raise _mistake(what, f"returned {type(value).__name__} instead of {kind.__name__}(...)")
        if count > most:
            problem = f"returned more than {most:,} {things}. Start fewer in one state: give each child a range of the "
            raise _mistake(what, f"{problem}work, and let it have children of its own")
        yield value


def _guarded(function: Callable[[Any], Iterable[Any]], context: object, what: str) -> Iterator[Any]:
    try:
        yield from function(context)
    except Exception as error:
        raise _mistake(what, f"raised {type(error).__name__}: {error}") from error


def _check_child(child: Child[object], parent: str, what: str, names: set[int]) -> None:
    if not child.name:
        raise _mistake(what, "returned a child without a name. Its id is made from its name: give it one")
    workflow = f"{parent}.{child.name}"
    try:
        check_id(workflow, "the id of a child")
    except InterlockError as error:
        named = f"returned a child with the name {child.name!r:.80}"
        if len(workflow) > ID_CHARACTERS_MAX:
            problem = f"its id {workflow!r:.80}… would have {len(workflow)} characters, at most {ID_CHARACTERS_MAX}"
            raise _mistake(what, f"{named}: {problem} are allowed. Give it a shorter name") from error
        problem = f"its id {workflow!r:.80} has a slash, or a character that is not printable"
        raise _mistake(what, f"{named}: {problem}. Give it a name without") from error
    number = hash(child.name)
    if number in names:
        raise _mistake(what, f"returned two children with the name {child.name!r}. Give each a name of its own")
    names.add(number)


def _mistake(what: str, problem: str) -> NonRetryable:
    return NonRetryable(f"{what} {problem.removesuffix('.')}.")


def _key_of(ctx: StepContext, message: str) -> str:
    """Return the delivery key of a message. The end of the run's key is unique, so a long name loses its beginning."""
    return f"{ctx.key[len(message) + 1 - ID_CHARACTERS_MAX :]}.{message}"


def _name_both(error: RequestError, what: str) -> None:
    """Let a refusal that leaves a step say which two workflows it is about: the dead letter quotes it."""
    error.what = f"{what}: {error.what}"
    error.args = (error.what,)


def _demand_cancelled(refused: list[str], ctx: StepContext) -> None:
    if refused:
        more = "" if len(refused) == 1 else f" And {len(refused) - 1} more."
        raise NonRetryable(f"{refused[0]}{more} Resolve it there, and retry this of {ctx.workflow!r}.")

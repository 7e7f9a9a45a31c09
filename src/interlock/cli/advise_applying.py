"""`interlock advise --apply` and `--undo`: apply a verdict after confirmation, and revert it.

Four verdicts are settings of a tool, written into `interlock.toml`; two are moves, made as `interlock route` makes
them. Changes that need code are printed with the line; code is never edited. The user confirms every change, and it is
written into a journal before it is made.
"""

import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import unquote

from interlock.catalog.moves import Moved, Plan
from interlock.catalog.secrets import shown as shown_url
from interlock.catalog.secrets import with_secrets, without_secrets
from interlock.catalog.settings_file import Table, change_settings, settings_file, settings_in, shown
from interlock.cli.advise_shown import Advice, Done, labelled
from interlock.cli.output import escaped, stderr
from interlock.errors import BadUsage, TargetNotFound, UnusableFile
from interlock.hotrow.advice.journal import Applied, Journal
from interlock.hotrow.advice.verdict import Knob, Verdict
from interlock.seams import Clock
from interlock.sql.postgres.address import is_postgres

SCHEMA_CHARACTERS_MAX = 63
KINDS_NOTE = "Counters that code opens with another kind stay what they are."
STREAMS_NOTE = (
    "Rows that are there stay in the database itself: copy them into their streams, which are empty at first; and back "
    "again before it is undone."
)


class Routing(NamedTuple):
    """A move to be made."""

    name: str
    source: str
    """Where it lives now; an empty one is found in the catalog of the home."""
    target: str
    home: str | None


class Router(Protocol):
    """Moves databases."""

    def find(self, routing: Routing) -> str:
        """Return the current URL of the database. Raises TargetNotFound."""
        ...

    def plan(self, routing: Routing) -> Plan | None:
        """Return the estimate of the move; None when the source is already sealed."""
        ...

    def move(self, routing: Routing) -> Moved:
        """Move it, and show the progress on stderr."""
        ...

    def move_back(self, routing: Routing) -> None:
        """Move it back; a begun move whose source is not sealed is abandoned."""
        ...


class Where(NamedTuple):
    """The places on the command line."""

    home: str | None
    to: str | None
    postgres: str | None
    addresses: dict[str, str]
    """Of databases, as far as they are known, by name."""


class Applying:
    """One run of the command."""

    def __init__(self, where: Where, *, yes: bool, clock: Clock, router: Router) -> None:
        self._where = where
        self._yes = yes
        self._clock = clock
        self._router = router
        self._file = settings_file()
        self.declined = False
        """Whether the user declined a change."""
        self.journal = Journal(_folder(where.home) or self._file.parent)

    def apply(self, advice: Advice) -> Done | None:
        """Apply one verdict; return None when no command can do it, or when the user declines."""
        verdict = advice.verdict
        if verdict.action == "stay":
            return None
        if verdict.action in {"couple", "uncouple"}:
            entry, plan = self._moving(advice.name, verdict)
            lines = [f"Move {advice.name} to {shown_url(entry.goal)}, while it serves.", *_planned(plan)]
            lines.append(
                f"The same as: interlock route {shlex.quote(advice.name)} --to {shlex.quote(shown_url(entry.goal))}"
            )
        else:
            entry = self._setting(advice.name, verdict)
            if not entry.set:
                self._tell_nothing(verdict)
                return None
            lines = [self._setting_line(entry), "It counts from the next time that the database is opened."]
            lines += _notes(verdict)
        undo = self._undo_command(entry)
        if not self._agreed(advice.name, [*lines, *_by_hand(verdict)], undo):
            return None
        entry = self.journal.begin(entry)
        self._do(entry)
        self.journal.mark(entry, "done")
        return _report(Done(number=entry.number, what=lines[0], undo=undo), entry.name, "applied")

    def undo(self, name: str | None) -> Done | None:
        """Revert the last change of one workload or of all; return None when the user declines."""
        entry = self.journal.last(name)
        if entry is None:
            raise TargetNotFound(
                f"nothing is to be undone{'' if name is None else f' of {name!r}'}.",
                why=f"The journal {self.journal.path} has nothing that was applied and not undone.",
                fix="Name the home or the folder in which it was applied, and the workload.",
            )
        if entry.goal:
            lines = [f"Move {entry.name} back to {shown_url(entry.source)}, while it serves."]
        else:
            self._refuse_changed(entry)
            lines = [_back_line(entry)]
            lines += [STREAMS_NOTE] * (entry.action == "separate")
        if not self._agreed(entry.name, lines, f"interlock advise {shlex.quote(entry.name)} --apply"):
            return None
        if entry.goal:
            self._router.move_back(self._routing(entry.name, entry.goal, entry.source, entry.home))
        else:
            change_settings(Path(entry.file), Table("tools", entry.name), entry.before)
        self.journal.mark(entry, "undone")
        return _report(Done(number=entry.number, what=lines[0], undo=""), entry.name, "undone")

    def _do(self, entry: Applied) -> None:
        if entry.goal:
            self._router.move(self._routing(entry.name, entry.source, entry.goal, entry.home))
        else:
            change_settings(Path(entry.file), Table("tools", entry.name), dict(entry.set))

    def _routing(self, name: str, source: str, target: str, home: str) -> Routing:
        """Return the move with the passwords of the command line: stored URLs have none."""
        where = self._where
        known = [each for each in (where.to, where.postgres, where.home, *where.addresses.values()) if each]
        return Routing(name, with_secrets(source, *known), with_secrets(target, *known), where.home or home or None)

    def _setting(self, name: str, verdict: Verdict) -> Applied:
        now = settings_in(self._file, Table("tools", name))
        changes = {knob: value for knob, value in verdict.knobs.items() if now.get(knob) != value}
        before: dict[str, Knob | None] = {knob: now.get(knob) for knob in changes}
        return self._entry(name, verdict, file=str(self._file), set=changes, before=before)

    def _moving(self, name: str, verdict: Verdict) -> tuple[Applied, Plan | None]:
        where = self._where
        goal = where.to or (self._coupled(name) if verdict.action == "couple" else self._uncoupled(name))
        routing = self._routing(name, where.addresses.get(name, ""), goal, where.home or "")
        source = self._router.find(routing)
        entry = self._entry(
            name,
            verdict,
            home=without_secrets(where.home or ""),
            source=without_secrets(source),
            goal=without_secrets(goal),
        )
        return entry, self._router.plan(routing._replace(source=source))

    def _entry(self, name: str, verdict: Verdict, **fields: object) -> Applied:
        time = datetime.fromtimestamp(self._clock.wall_s(), UTC).isoformat(timespec="seconds")
        return Applied(
            number=0,
            time=time,
            name=name,
            action=verdict.action,
            target=verdict.target,
            **fields,  # type: ignore[arg-type]  # The fields of one kind of entry or the other.
        )

    def _coupled(self, name: str) -> str:
        postgres = self._where.postgres
        if postgres is None:
            raise BadUsage(
                f"where {name!r} should be moved to is not said.",
                why="The verdict is to couple it to PostgreSQL, and there may be several.",
                fix="Give --to 'postgresql://host/database?schema=NAME', or --postgres URL for every database, which "
                "may also stand in interlock.toml (postgres = …) or in INTERLOCK_POSTGRES.",
            )
        return with_schema(postgres, name)

    def _uncoupled(self, name: str) -> str:
        came = [each for each in self.journal.entries() if each.name == name and each.action == "couple"]
        if came and came[-1].source:
            return came[-1].source
        home = self._where.home
        if home is not None and not is_postgres(home) and home != "memory:":
            place, mark, options = home.partition("?")
            return f"{place.rstrip('/')}/{name}{mark}{options}"
        raise BadUsage(
            f"where {name!r} should be moved to is not said.",
            why="The verdict is to bring it back to a lane, and nothing here has moved it from one.",
            fix="Give --to lanes:///folder/name, or s3://bucket/name.",
        )

    def _refuse_changed(self, entry: Applied) -> None:
        now = settings_in(Path(entry.file), Table("tools", entry.name))
        for knob, value in entry.set.items():
            # What was begun may not have been done: then it is as it was.
            if now.get(knob) not in {value, entry.before[knob]}:
                raise UnusableFile(
                    f"{knob} of {Table('tools', entry.name)} is {now.get(knob)!r} now; {value!r} was applied.",
                    why="It was changed after it was applied, and --undo reverts only its own change.",
                    fix=f"Change it by hand in {entry.file}; it was {entry.before[knob]!r} before.",
                )

    def _agreed(self, name: str, lines: Sequence[str], undo: str) -> bool:
        console = stderr()
        console.print(escaped(f"\n{name}: to be done"), style="bold", soft_wrap=True)
        console.print(escaped("\n".join([labelled("do", "\n".join(lines)), labelled("undo", undo)])), soft_wrap=True)
        if self._yes:
            return True
        console.print("Do it? [y/N] ", end="")
        try:
            answer = input()
        except EOFError:
            raise BadUsage(
                "the confirmation is missing: the input has ended.",
                why="Each change has to be confirmed.",
                fix="Answer y, or add --yes.",
            ) from None
        if answer.strip().lower() in {"y", "yes"}:
            return True
        console.print("Nothing was changed.")
        self.declined = True
        return False

    def _tell_nothing(self, verdict: Verdict) -> None:
        if verdict.knobs:
            stderr().print(f"{escaped(verdict.database)}: it is set already, in {self._file}.", soft_wrap=True)
            return
        stderr().print(f"{escaped(verdict.database)}: only code can do this: {escaped(verdict.code)}", soft_wrap=True)

    def _setting_line(self, entry: Applied) -> str:
        values = ", ".join(f"{knob} = {shown(value)}" for knob, value in entry.set.items())
        return f"Set {values} below {Table('tools', entry.name)} of {entry.file}."

    def _undo_command(self, entry: Applied) -> str:
        words = ["interlock", "advise", "--undo", entry.name]
        if self._where.home is not None:
            words += ["--home", shown_url(self._where.home)]
        return shlex.join(words)


def with_schema(url: str, name: str) -> str:
    """Return the URL of a PostgreSQL with a schema of that name, unless it has one."""
    place, mark, options = url.partition("?")
    if any(option.partition("=")[0] == "schema" for option in options.split("&")):
        return url
    schema = re.sub(r"[^a-z0-9_]+", "_", name.lower())[:SCHEMA_CHARACTERS_MAX]
    schema = schema if re.match("[a-z_]", schema) and not schema.startswith("pg_") else f"_{schema}"
    return f"{place}?{options}{'&' * bool(mark and options)}schema={schema[:SCHEMA_CHARACTERS_MAX]}"


def _planned(plan: Plan | None) -> list[str]:
    if plan is None:
        return ["It has left already, and only has to arrive."]
    copied = f"{plan.rows:,} rows: about {plan.copy_s:.1f} s to copy and compare"
    return [f"{copied}, then about {plan.seal_ms:,.0f} ms in which writers wait.", *plan.notes]


def _report(done: Done, name: str, how: str) -> Done:
    stderr().print(escaped(f"{name}: {how}, number {done.number} of the journal."), soft_wrap=True)
    return done


def _notes(verdict: Verdict) -> list[str]:
    notes = {"sharded": KINDS_NOTE, "event_log": KINDS_NOTE, "streams": STREAMS_NOTE}
    return [notes[verdict.target]] if verdict.target in notes else []


def _by_hand(verdict: Verdict) -> list[str]:
    return [f"Only code can do the rest: {verdict.code}"] if verdict.code else []


def _back_line(entry: Applied) -> str:
    parts = [
        f"take {knob} out" if value is None else f"set {knob} = {shown(value)}" for knob, value in entry.before.items()
    ]
    text = ", ".join(parts)
    return f"{text[0].upper()}{text[1:]}, in {Table('tools', entry.name)} of {entry.file}."


def _folder(home: str | None) -> Path | None:
    """Return the folder of a home of lanes."""
    return Path(unquote(home.removeprefix("lanes://"))) if home is not None and home.startswith("lanes:///") else None

"""Writes the parts of the documentation that follow from the code: `make reference`.

A test compares what this makes with what is committed, so the pages and pictures cannot fall behind. A page that is
written by hand may have parts that are made: those between `<!-- made: NAME -->` and `<!-- end: NAME -->`.
"""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from interlock import InterlockError, errors
from interlock.examples.checkout import checkout
from interlock.examples.order import order
from interlock.observe.metrics import METRICS
from interlock.server.app_declaration import Limits
from interlock.server.openapi import document
from interlock.server.problems import HTTP_STATUS, phrase, status_of
from interlock.server.router import Endpoint
from interlock.server.routes import ROUTES
from interlock.wire import Problem

DOCS = Path(__file__).parent
ROOT = DOCS.parent

ERRORS_HEAD = """# Errors

Every exception of Interlock is in one tree. Each class has a stable `code`, an advice whether to try again
(`retry`), and a text in three parts: what happened, why, and how to fix it. The text is the same in Python, on the
command line and over HTTP.

```text
{tree}
```

| class | code | retry | means | why | fix |
|---|---|---|---|---|---|
"""


def error_classes() -> Iterator[type[InterlockError]]:
    """Every class of errors, in the order of `errors.py`."""
    for cls in vars(errors).values():
        if isinstance(cls, type) and issubclass(cls, InterlockError):
            yield cls


def first_line(thing: object) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def errors_page() -> str:
    """The tree as it is drawn in `errors.py`, and a row for every class in the order of that file."""
    tree = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")[2].partition("\n\nEach class")[0]
    page = ERRORS_HEAD.format(tree=inspect.cleandoc(tree))
    for cls in error_classes():
        cells = (f"`{cls.__name__}`", f"`{cls.code}`", cls.retry, first_line(cls), cls.default_why, cls.default_fix)
        page += "| " + " | ".join(cells) + " |\n"
    return page


def example_page() -> str:
    """The two machines that ship, as tables."""
    head = "# The machines that ship\n\nWritten by `machine.table()`; the source is in `interlock.examples`.\n\n"
    order_part = f"## order\n\n![The order machine](../images/order.svg)\n\n{order.table().strip()}\n\n"
    return head + order_part + f"## checkout\n\n![The checkout pipeline](../images/checkout.svg)\n\n{checkout.table()}"


METRICS_HEAD = """# Metrics

One table for all formats. The dotted name is OpenTelemetry's. With underscores it is Prometheus's, where a counter ends
in `_total`, and a histogram has `_bucket`, `_count` and `_sum`. Durations are seconds, and no name has a unit in it.

What stands between `state.machine.depth` and `workflows.stalled` is counted by a query of the store when a client
asks, at most once a second and at most a twentieth of the time; `store.sample.age` says how old the answer is. On a
store that several processes share each of them tells the same: use `max`, not `sum`. Everything else is of one process.

| name | kind | labels | unit | means |
|---|---|---|---|---|
"""


def metrics_page() -> str:
    """Everything that is measured."""
    page = METRICS_HEAD
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        page += f"| `{metric.name}` | {metric.kind} | {labels} | {metric.unit} | {metric.description} |\n"
    return page


# --- HTTP -----------------------------------------------------------------------------------------------------------

BOUND_SHOWN_MAX = 1_000_000
"""A larger bound only rejects absurd values; the page does not show it."""

LIMITED = {
    "machine": "A key with limits needs the machine in the path among them.",
    "workflow": "A key with limits needs the workflow, and its machine, among them.",
    "letter": "A key with limits needs the workflow, and its machine, among them.",
    "items": "A key with limits sees and moves only what is within them.",
    "home": "Not for a key with limits: this is about the whole home.",
}
"""What the limits of a key mean for a route."""

ONLY_HTTP = {
    "bad-signature": "The signature of a webhook is missing, wrong, or older than five minutes.",
    "breaker-not-found": "No machine here calls a dependency of that name.",
    "database-not-found": "There is no database of that name, or it holds workflows.",
    "head-too-large": "The address and the headers are larger than `head_bytes_max`, or have no end.",
    "invalid-request": "The request is not valid HTTP, or is ambiguous.",
    "machine-not-found": "This server has no machine of that name.",
    "method-not-allowed": "The path is there for other methods; `Allow` names them.",
    "no-metrics": "The engine has no Prometheus exporter: it was opened without the observer.",
    "not-found": "No route has this path.",
    "request-timeout": "Nothing of the body came for `body_s`, or the head took longer than `head_s`.",
    "unsupported-media-type": "The body is compressed, or its type is not JSON in UTF-8.",
    "webhook-not-found": "No source of webhooks has that name.",
}
"""The codes that no class of errors has."""


def routes_part() -> str:
    """Every route that the server has, by the table that it is served from."""
    tags = dict.fromkeys(route.tag for route in ROUTES)
    described = document(ROUTES)
    parts = [f"### {tag}\n\n" + "".join(_route(r, described) for r in ROUTES if r.tag == tag) for tag in tags]
    return index_of_routes() + "\n" + "\n".join(part.rstrip() + "\n" for part in parts)


def index_of_routes() -> str:
    """A row for each route."""
    rows = "".join(
        f"| `{r.method}` | [`{r.path}`](#{anchor(r)}) | {f'`{r.scope}`' if r.scope else '—'} | {r.summary} |\n"
        for r in ROUTES
    )
    return f"| method | path | scope | what it does |\n|---|---|---|---|\n{rows}"


def anchor(route: Endpoint) -> str:
    """The anchor of a route's heading, as it is made of the heading."""
    return re.sub(r"[^\w\- ]", "", f"{route.method} {route.path}".lower()).strip().replace(" ", "-")


def _route(route: Endpoint, described: dict[str, object]) -> str:
    text = f"#### `{route.method} {route.path}`\n\n{route.summary}.\n\n"
    if route.scope is None:
        text += "No API key is asked for.\n\n"
    else:
        limited = LIMITED.get(route.about or "", "")
        text += f"Scope `{route.scope}`. {limited}".rstrip() + "\n\n"
    if route.parameters:
        text += "| parameter | in | type | meaning |\n|---|---|---|---|\n"
        for each in route.parameters:
            example = "" if each.example is None else f" Example: `{_plain(each.example)}`"
            text += f"| `{each.name}` | {each.place} | {_type(each.schema)} | {each.description}{example} |\n"
        text += "\n"
    if route.body is not None:
        text += f"Body, `{route.body_media}`:{_fields(route.body)}\n\n{_block(route.body_example)}"
    text += _answers(route, described)
    return text


def _answers(route: Endpoint, described: dict[str, object]) -> str:
    paths = msgspec.convert(described["paths"], dict[str, dict[str, dict[str, object]]])
    responses = msgspec.convert(paths[route.path][route.method.lower()]["responses"], dict[str, object])
    statuses = sorted(map(int, responses))
    good = ", ".join(f"{status} {phrase(status)}" for status in statuses if status in route.answers)
    bad = ", ".join(str(status) for status in statuses if status not in route.answers)
    listed = "a listing of " if route.lists else ""
    what = f": {listed}{_named(route.answer)}" if route.answer not in {None, dict} else ""
    text = f"Answers {good}, `{route.answer_media}`{what}; problems {bad}.\n\n"
    return text + (_block(route.answer_example) if route.answer_example is not None else "")


def _named(cls: type | None) -> str:
    """The fields of a struct of answers."""
    assert cls is not None
    return ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(cls))


def _fields(cls: type) -> str:
    """The fields of a body; an object of the program's own has none here."""
    if cls is dict:
        return " whatever the source sends."
    shown = [f"`{f.name}`" + ("" if f.required else " (optional)") for f in msgspec.structs.fields(cls)]
    return " " + ", ".join(shown) + "."


def _type(schema: dict[str, object]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in msgspec.convert(schema["enum"], list[str]))
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = "" if low is None else f", {low} or more"
    if low is not None and isinstance(high, int | float) and high <= BOUND_SHOWN_MAX:
        bounds = f", {low} to {high:,}"
    return str(schema.get("type", "string")) + bounds


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _block(example: object) -> str:
    if example is None:
        return ""
    text = example.rstrip() if isinstance(example, str) else json.dumps(example, ensure_ascii=False)
    return f"```json\n{text}\n```\n\n"


ELSEWHERE = (
    errors.DefinitionError,
    errors.MissingExtra,
    errors.Retryable,
    errors.NonRetryable,
    errors.BadUsage,
    errors.TargetNotFound,
    errors.UnusableFile,
    errors.LeaseHeld,
)
"""What is never the answer to a request."""

ALSO = {"version-conflict": {412}, "transaction": {409}}
"""Statuses that depend on more than the class: If-Match asked for the version; others came first too often."""


def statuses_part() -> str:
    """Which code has which status: the errors that a request can cause, and what only HTTP knows."""
    rows: dict[str, tuple[set[int], str, str]] = {}
    classes = list(error_classes())
    told = {errors.UnavailableError, errors.TransactionError}
    for cls in classes:
        # Parents say less than their children, and what steps raise for themselves never gets here.
        parent = cls not in told and any(other is not cls and issubclass(other, cls) for other in classes)
        if not parent and not issubclass(cls, ELSEWHERE):
            rows[cls.code] = ({status_of(cls.__new__(cls))} | ALSO.get(cls.code, set()), cls.retry, first_line(cls))
    for code, status in HTTP_STATUS.items():
        known, retry, means = rows.get(code) or (set[int](), "never", ONLY_HTTP.get(code, ""))
        rows[code] = (known | {status}, retry, means)
    table = "".join(
        f"| `{code}` | {' or '.join(map(str, sorted(statuses)))} | {retry} | {means} |\n"
        for code, (statuses, retry, means) in sorted(rows.items(), key=lambda row: (min(row[1][0]), row[0]))
    )
    return f"| code | status | retry | means |\n|---|---|---|---|\n{table}"


def limits_part() -> str:
    """The bounds of a server, with their defaults and what the source says about them."""
    source = inspect.getsource(Limits)
    told = dict(re.findall(r'^    (\w+): \w+ = .*\n    """(.*)"""$', source, re.MULTILINE))
    table = "".join(
        f"| `{f.name}` | {f.default:,g} | {told[f.name]} |\n".replace(".0 |", " |")
        if not isinstance(f.default, int)
        else f"| `{f.name}` | {f.default:,} | {told[f.name]} |\n"
        for f in msgspec.structs.fields(Limits)
    )
    return f"| limit | default | of |\n|---|---|---|\n{table}"


PARTS = {"routes": routes_part, "statuses": statuses_part, "limits": limits_part}


def http_page(path: Path) -> str:
    """The page on HTTP with its made parts as the code has them."""
    text = path.read_text(encoding="utf-8")
    for name, make in PARTS.items():
        begin, end = f"<!-- made: {name} -->\n", f"<!-- end: {name} -->\n"
        before, found, rest = text.partition(begin)
        assert found, f"{path.name} has no part {name!r}"
        text = before + begin + "\n" + make().strip() + "\n\n" + end + rest.partition(end)[2]
    return text


# --- For coding assistants ------------------------------------------------------------------------------------------

SECTIONS = {"tutorial": "Tutorial", "how-to": "How-to", "reference": "Reference", "explanation": "Explanation"}

GUIDE = (
    "tutorial/first-machine",
    "how-to/run-workflows",
    "how-to/undo-what-was-done",
    "how-to/undo-in-cycles",
    "how-to/use-timers",
    "how-to/schedules",
    "how-to/children-and-joins",
    "how-to/messages-between-workflows",
    "how-to/approvals",
    "how-to/side-messages",
    "how-to/step-clients",
    "how-to/survive-a-failing-dependency",
    "how-to/test-workflows",
    "how-to/test-a-year",
    "how-to/send-in-your-transaction",
    "how-to/webhooks-from-vendors",
    "how-to/not-there",
    "reference/errors-of-steps",
    "reference/checks",
)
"""The pages of the single-file guide, in reading order."""

ASSISTANTS_HEAD = """# Interlock

> Durable state-machine workflows for Python. A machine (states, events, guards, actions, steps with undos) is declared
> once, checked, and run durably in a folder, a bucket or PostgreSQL. Guards and actions are pure; steps are async, have
> a timeout, and run at least once.

- Install from the repository: `pip install -e ".[server]"`. Python 3.11 or later. It is on no package index.
- Not there: parallel states, an inbox for human tasks. docs/how-to/not-there.md has what to do.
- Check a machine: `interlock check MODULE:ATTR`. Test it without sleeping: `interlock.testing.Harness`.
"""


def llms_page() -> str:
    """The index of the documentation for coding assistants: `llms.txt`."""
    text = ASSISTANTS_HEAD + "- The pages that a program needs, in one file: [llms-full.txt](llms-full.txt)\n"
    for folder, title in SECTIONS.items():
        text += f"\n## {title}\n\n"
        for path in sorted((DOCS / folder).glob("*.md")):
            text += f"- [{page_title(path)}](docs/{folder}/{path.name})\n"
    return text


def page_title(path: Path) -> str:
    """The first heading of a page."""
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def guide_page() -> str:
    """The guide in one file: code, tables and lists of its pages, and the first paragraph of each section."""
    parts = [ASSISTANTS_HEAD.rstrip() + "\n"]
    for name in GUIDE:
        path = DOCS / f"{name}.md"
        parts.append(f"<!-- docs/{name}.md -->\n" + compact(path.read_text(encoding="utf-8")))
    return "\n".join(parts)


def compact(text: str) -> str:
    """A page without its later paragraphs, comments and the targets of its links."""
    kept: list[str] = []
    paragraphs = 0
    for block in _blocks(text):
        first = block.partition("\n")[0]
        if first.startswith("#"):
            paragraphs = 0
        elif first.startswith(("```python", "|", "- ", "1. ", ":")):
            pass
        elif first.startswith(("```", "<!--")):
            continue
        else:
            paragraphs += 1
            if paragraphs > 1 and not block.endswith(":"):
                continue
        kept.append(block if first.startswith("```") else re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block))
    return "\n\n".join(kept) + "\n"


def _blocks(text: str) -> list[str]:
    """The parts of a page that blank lines separate; code is one part."""
    blocks: list[str] = []
    inside = False
    for part in text.strip().split("\n\n"):
        if inside:
            blocks[-1] += f"\n\n{part}"
        else:
            # A comment stands right above its block.
            blocks += re.sub(r"^<!--.*?-->\n(?=```)", "", part.strip("\n"), flags=re.DOTALL).split("\n\n")
        inside ^= len(re.findall(r"^ *```", part, flags=re.MULTILINE)) % 2 == 1
    return blocks


def members_of_problems() -> list[str]:
    """What a problem document can have."""
    return [field.name for field in msgspec.structs.fields(Problem)]


def pages() -> dict[Path, str]:
    """Everything that is made, by its path."""
    http = DOCS / "reference" / "http.md"
    return {
        DOCS / "reference" / "errors.md": errors_page(),
        DOCS / "reference" / "example-machines.md": example_page(),
        DOCS / "reference" / "metrics.md": metrics_page(),
        http: http_page(http),
        ROOT / "llms.txt": llms_page(),
        ROOT / "llms-full.txt": guide_page(),
        DOCS / "images" / "order.svg": order.svg(),
        DOCS / "images" / "checkout.svg": checkout.svg(),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"written: {path.relative_to(DOCS.parent)}")  # noqa: T201 -- a program for people.

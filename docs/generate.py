"""Writes the parts of the documentation that follow from the code: `make reference`.

A test compares what this makes with what is committed, so the pages and pictures cannot fall behind.
"""

import inspect
from pathlib import Path

from interlock import InterlockError, errors
from interlock.examples.checkout import checkout
from interlock.examples.order import order

DOCS = Path(__file__).parent

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


def errors_page() -> str:
    """The tree as it is drawn in `errors.py`, and a row for every class in the order of that file."""
    tree = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")[2].partition("\n\nEach class")[0]
    page = ERRORS_HEAD.format(tree=inspect.cleandoc(tree))
    for cls in vars(errors).values():
        if isinstance(cls, type) and issubclass(cls, InterlockError):
            means = (inspect.getdoc(cls) or "").partition("\n")[0]
            cells = (f"`{cls.__name__}`", f"`{cls.code}`", cls.retry, means, cls.default_why, cls.default_fix)
            page += "| " + " | ".join(cells) + " |\n"
    return page


def example_page() -> str:
    """The two machines that ship, as tables."""
    head = "# The machines that ship\n\nWritten by `machine.table()`; the source is in `interlock.examples`.\n\n"
    order_part = f"## order\n\n![The order machine](../images/order.svg)\n\n{order.table().strip()}\n\n"
    return head + order_part + f"## checkout\n\n![The checkout pipeline](../images/checkout.svg)\n\n{checkout.table()}"


def pages() -> dict[Path, str]:
    """Everything that is made, by its path."""
    return {
        DOCS / "reference" / "errors.md": errors_page(),
        DOCS / "reference" / "example-machines.md": example_page(),
        DOCS / "images" / "order.svg": order.svg(),
        DOCS / "images" / "checkout.svg": checkout.svg(),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"written: {path.relative_to(DOCS.parent)}")  # noqa: T201 -- a program for people.

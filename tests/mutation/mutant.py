"""One mutant: a single change to a source file that some test must notice."""

from dataclasses import dataclass

CORE = "interlock/core"


@dataclass(frozen=True)
class Mutant:
    """`old` stands exactly once in `file`; with `new` in its place one of `tests` must fail, because `why`."""

    name: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]


def applied(text: str, mutant: Mutant) -> str:
    """The mutated source. Raises ValueError when the old text is not there exactly once."""
    count = text.count(mutant.old)
    if count != 1:
        raise ValueError(f"the old text stands {count} times in {mutant.file}")
    return text.replace(mutant.old, mutant.new)

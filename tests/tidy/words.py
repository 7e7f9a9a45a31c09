"""Rules on words: actors have names, and identifiers are nouns or verbs with an object.

The banned words hide who does something ("whoever") or use an idiom where the trade has a word ("mended" for "fixed").
They are counted in comments, docstrings, texts and code alike.
"""

import io
import re
import tokenize

from tests.tidy.source import Offence, Source

BANNED = re.compile(
    r"\b(whoever|whatever becomes|nobody|somebody|anybody|everybody|those who|mended|mends?|behind|so many|so-manieth|"
    r"at once|(?:is|are|was|were|be|been|being) told|(?-i:is none|are none)|"
    r"(?<!there )(?<!There )(?:is|are|was|were) no (?=[a-z]))\b",
    re.IGNORECASE,
)
PARTICIPLES = frozenset({"told", "noted", "given", "asked", "held", "shown", "gone", "said", "heard", "seen"})


def banned_words(path: str, text: str) -> list[Offence]:
    """A word that names no actor, or that is none of the trade's."""
    return [
        Offence(path, number, f"'{match[0]}': name the actor, or use the word of the trade")
        for number, line in enumerate(text.splitlines(), start=1)
        for match in BANNED.finditer(line)
    ]


def bare_participles(source: Source) -> list[Offence]:
    """An identifier that is a participle and nothing else: it does not say of what."""
    return [
        Offence(source.path, token.start[0], f"'{token.string}' is a bare participle: name the thing")
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline)
        if token.type == tokenize.NAME and token.string.removeprefix("_") in PARTICIPLES
    ]

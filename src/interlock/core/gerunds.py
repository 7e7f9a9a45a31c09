"""English gerunds for pipeline states: the step `charge` gets the state CHARGING. `state=` overrides a wrong one."""

_VOWELS = "aeiou"

_DOUBLING = frozenset(
    {"admit", "begin", "commit", "defer", "forget", "fulfil", "occur", "permit", "refer", "submit", "transfer"}
)
"""Verbs of two syllables that double their last letter, because the stress is on the second syllable."""


def gerund(name: str) -> str:
    """`charge` -> `charging`, `ship_goods` -> `shipping_goods`, `notify` -> `notifying`."""
    verb, separator, rest = name.strip("_").partition("_")
    return _ing(verb.lower()) + separator + rest


def _ing(verb: str) -> str:
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")) and len(verb) > 2:  # noqa: PLR2004 -- "be".
        return verb[:-1] + "ing"
    if verb.endswith("ic"):
        return verb + "king"
    if verb in _DOUBLING or _is_short(verb):
        return verb + verb[-1] + "ing"
    return verb + "ing"


def _is_short(verb: str) -> bool:
    """One syllable that ends consonant, vowel, consonant: ship, get, plan; but not fix, show, pay."""
    padded = f"   {verb}"
    head, before, vowel, last = padded[:-3], padded[-3], padded[-2], padded[-1]
    one_syllable = not any(letter in _VOWELS for letter in head)
    closed = before not in _VOWELS + " " and vowel in _VOWELS and last.isalpha() and last not in _VOWELS + "wxy"
    return one_syllable and closed

"""What users write when they mean harm: markup, script, SQL, quotes, and characters that turn text around."""

import json
import re

MARKUP = "<script>window.owned = 1</script><img src=x onerror='window.owned = 2'><svg onload=window.owned=3>"
QUOTES = "\"'`</textarea></title>--> '; DROP TABLE workflows; --"
UNICODE = "ü 漢字 😀 ${7*7} {{7*7}} &lt;b&gt; javascript:alert(1)"
TURNED = "\u202egnp.exe\u202c \u2066txt\u2069"
"""Overrides of the direction: what is written behind them would be read from right to left."""

HOSTILE = f"{MARKUP} {QUOTES} {UNICODE} {TURNED}"

# An id has no slash, and nothing that cannot be printed.
HOSTILE_ID = "<img src=x onerror=window.owned=4> \"'` ?#%2F%3C&lt; ü 漢字"
HOSTILE_NAME = "<b onclick=window.owned=5>carrier \"'`"

_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")


def seen(text: str) -> str:
    """A text as the dashboard shows it: letter by letter, and what would turn others around by its number."""
    return _TURNS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def seen_in_json(text: str) -> str:
    """A text as the dashboard shows it within a context."""
    return seen(json.dumps(text, ensure_ascii=False))

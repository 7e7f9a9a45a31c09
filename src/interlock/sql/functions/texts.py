"""Functions on text and bytea as PostgreSQL has them; a text is counted in characters.

Case and classes of characters are those of PostgreSQL's builtin locale C.UTF-8. It maps each character alone, by
Unicode's simple mappings, so it is the same on every machine. The mappings and classes of PostgreSQL 18 are in
`letters.json`, written and compared by the conformance tests: Python's own tables follow another version of Unicode,
and its mappings may give several characters.

Sections: parts and padding, case and classes, floats, LIKE patterns, quoting, bytes, entries.
"""

import base64
import hashlib
import math
import re
import unicodedata
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from decimal import Context, Decimal, localcontext
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec

from interlock.errors import DialectError
from interlock.sql.parse import parse, quoted_name
from interlock.sql.registry import Entry, built, cast, function, internal, operator, written
from interlock.sql.scope import Term, call, combined
from interlock.sql.stored_values import StoredValue
from interlock.sql.types import INTEGER_RANGE, InvalidValue, Type, refuse

TextT = TypeVar("TextT", str, bytes)
TEXT_LENGTH_MAX: Final = 10_000_000
_FIXED_DIGITS: Final = 15  # PostgreSQL writes a float with an exponent from here on.
_FIXED_ZEROS: Final = -4
_DIGITS_MAX: Final = 17
_EXACT: Final = Context(prec=1200)  # The middle of two floats has no more digits than that.


# --- Parts and padding -----------------------------------------------------------------------------------------------


def _position(text: TextT, sought: TextT) -> int:
    """Return the position of one text in the other, counted from one; zero if absent."""
    return text.find(sought) + 1


def substring(text: TextT, start: int, length: int | None = None) -> TextT:
    """Return the part from a position on; positions before the first count towards the length, and are empty."""
    if length is None:
        return text[max(start - 1, 0) :]
    if length < 0:
        raise InvalidValue(f"negative substring length {length}.", fix="Pass zero or more.")
    end = start + length - 1
    return text[max(start - 1, 0) : end] if end > 0 else text[:0]


def left(text: str, count: int) -> str:
    """Return the first characters, or all but the last ones."""
    return text[:count]


def right(text: str, count: int) -> str:
    """Return the last characters, or all but the first ones."""
    if count < 0:
        return text[-count:] if count > INTEGER_RANGE["int4"][0] else text  # PostgreSQL's minus overflows there.
    return text[max(len(text) - count, 0) :]


# The same functions trim bytes.


def _trim(text: str, letters: str = " ") -> str:
    return text.strip(letters) if letters else text


def _trim_left(text: str, letters: str = " ") -> str:
    return text.lstrip(letters) if letters else text


def _trim_right(text: str, letters: str = " ") -> str:
    return text.rstrip(letters) if letters else text


def replace(text: str, old: str, new: str) -> str:
    """Return the text with each occurrence of the one replaced by the other."""
    return _bounded(len(text) + text.count(old) * len(new), lambda: text.replace(old, new)) if old else text


def repeat(text: str, count: int) -> str:
    """Return the text repeated."""
    return _bounded(len(text) * max(count, 0), lambda: text * max(count, 0))


def _bounded(length: int, build: Callable[[], str]) -> str:
    if length > TEXT_LENGTH_MAX:
        raise refuse(f"a text of {length:,} characters; the limit is {TEXT_LENGTH_MAX:,}.", fix="Use less.")
    return build()


def pad_left(text: str, length: int, fill: str = " ") -> str:
    """Return the text filled up at its beginning, or cut off, to that length."""
    return _filling(text, length, fill) + text[: max(length, 0)]


def _pad_right(text: str, length: int, fill: str = " ") -> str:
    return text[: max(length, 0)] + _filling(text, length, fill)


def _filling(text: str, length: int, fill: str) -> str:
    missing = length - len(text)
    return _bounded(missing, lambda: (fill * (missing // len(fill) + 1))[:missing]) if missing > 0 and fill else ""


def _reverse(text: TextT) -> TextT:
    return text[::-1]


def split_part(text: str, delimiter: str, place: int) -> str:
    """Return the part at that place between two delimiters; a negative place counts from the end."""
    if place == 0:
        raise InvalidValue("split_part() of field 0.", fix="Fields are counted from 1, or from -1 at the end.")
    parts = text.split(delimiter) if delimiter else [text]
    if not text or abs(place) > len(parts):
        return ""
    return parts[place - 1 if place > 0 else place]


def _octet_length(value: str | bytes) -> int:
    return len(value.encode() if isinstance(value, str) else value)


def concat(*texts: StoredValue) -> str:
    """Return the texts one after the other; NULL is nothing."""
    return "".join([text for text in texts if isinstance(text, str)])


def concat_ws(separator: StoredValue, *texts: StoredValue) -> str | None:
    """Return the texts with a separator between each two; NULL is left out."""
    return separator.join([text for text in texts if isinstance(text, str)]) if isinstance(separator, str) else None


def varchar(text: str, length: int) -> str:
    """Return text for a column of limited length: too many characters are an error, too many spaces are cut off."""
    if text[length:].strip(" "):
        raise InvalidValue(
            f"text of {len(text)} characters is too long for varchar({length}).", fix="Shorten it, or widen the column."
        )
    return text[:length]


def char(text: str, length: int) -> str:
    """Return text for a column of fixed length, filled with blanks: too many characters are an error."""
    if text[length:].strip(" "):
        raise InvalidValue(
            f"text of {len(text)} characters is too long for char({length}).", fix="Shorten it, or widen the column."
        )
    return char_cut(text, length)


def char_cut(text: str, length: int) -> str:
    """Return text cast to a fixed length."""
    return text[:length].ljust(length)


def compare_padded(left: str, right: str) -> int:
    """Return the order of two texts without the blanks at their ends: the collation of char(n)."""
    first, second = left.rstrip(" "), right.rstrip(" ")
    return (first > second) - (first < second)


def _translate(text: str, old: str, new: str) -> str:
    """Return the text with each character of `old` replaced by the one at its place in `new`, or removed."""
    # Of a character given twice the first place counts.
    table = {ord(letter): new[place : place + 1] for place, letter in reversed(list(enumerate(old)))}
    return text.translate(table)


def _overlay(text: str, new: str, start: int, count: int | None = None) -> str:
    """Return the text with a part of it replaced."""
    if start <= 0:
        raise InvalidValue("negative substring length not allowed.", fix="Begin at 1 or later.")
    length = len(new) if count is None else count
    if start + length > INTEGER_RANGE["int4"][1]:
        raise InvalidValue("integer out of range.", fix="Begin earlier, or replace less.")
    return text[: start - 1] + new + text[max(start - 1 + length, 0) :]


def _code_point(text: str) -> int:
    """Return the code of the first character; zero without one: ascii()."""
    return ord(text[0]) if text else 0


def _character(code: int) -> str:
    """Return the character of a code: chr()."""
    if not 0 < code <= _CODE_MAX or _SURROGATES[0] <= code <= _SURROGATES[1]:
        raise InvalidValue(f"requested character not valid: chr({code}).", fix="Pass the code of a character.")
    return chr(code)


_CODE_MAX: Final = 0x10FFFF
_SURROGATES: Final = (0xD800, 0xDFFF)


# --- Case and classes ------------------------------------------------------------------------------------------------

CLASSES: Final = frozenset({"alnum", "alpha", "blank", "digit", "lower", "punct", "space", "upper", "word", "xdigit"})
_WIDER: Final[dict[str, tuple[str, str]]] = {"alnum": ("alpha", "0123456789"), "word": ("alpha", "0123456789_")}
_LISTED: Final = {"blank": " \t", "digit": "0123456789", "xdigit": "0123456789abcdefABCDEF"}


class _Table(msgspec.Struct):
    """Mappings as first character, last, distance between two of them, and difference; classes as first and last."""

    mappings: dict[str, list[tuple[int, int, int, int]]]
    classes: dict[str, list[tuple[int, int]]]


@cache
def _table() -> _Table:
    return msgspec.json.decode(files("interlock.sql").joinpath("letters.json").read_bytes(), type=_Table)


@cache
def _mapping(name: Literal["lower", "upper"]) -> dict[int, int]:
    return {
        code: code + difference
        for first, last, step, difference in _table().mappings[name]
        for code in range(first, last + 1, step)
    }


def lower(text: str) -> str:
    """Return the text in small letters."""
    return text.lower() if text.isascii() else text.translate(_mapping("lower"))


def upper(text: str) -> str:
    """Return the text in capital letters."""
    return text.upper() if text.isascii() else text.translate(_mapping("upper"))


_FOLDED: Final = {"\u0130": "\u0130", "\u1fd3": "\u0390", "\u1fe3": "\u03b0", "\ufb05": "\ufb06"}
"""Letters whose folding Python writes as several letters, or does not know yet."""


def fold(text: str) -> str:
    """Return the text for comparisons without regard to case: each letter by its simple folding."""
    return text.lower() if text.isascii() else "".join(_FOLDED.get(each) or _folded(each) for each in text)


def _folded(letter: str) -> str:
    folded = letter.casefold()
    # What Python does not know is folded to its small letter, and so is what it folds to several.
    return lower(letter) if len(folded) > 1 or unicodedata.category(letter) == "Cn" else folded


def initcap(text: str) -> str:
    """Return the text with a capital letter at the beginning of each word; a word is letters and digits."""
    small, large = lower(text), upper(text)
    words = [in_class("alnum", letter) for letter in text]
    inside = [False, *words]
    return "".join(
        large[place] if is_word != before else small[place]
        for place, (before, is_word) in enumerate(zip(inside, words, strict=False))
    )


def in_class(name: str, letter: str) -> bool:
    """Return whether a character belongs to a class of regular expressions."""
    if name in _LISTED:
        return letter in _LISTED[name]
    if name in _WIDER:
        wider, more = _WIDER[name]
        return letter in more or in_class(wider, letter)
    ranges = _table().classes[name]
    place = bisect_right(ranges, (ord(letter), 0x110000)) - 1
    return place >= 0 and ord(letter) <= ranges[place][1]


def cases(letter: str) -> frozenset[str]:
    """Return the characters that a character of a pattern stands for without regard to case."""
    return frozenset({lower(letter), upper(letter)})


def cases_of_range(low: str, high: str) -> Iterable[str]:
    """Return the other cases of the characters in a range."""
    for mapping in (_mapping("lower"), _mapping("upper")):
        for code, other in mapping.items():
            if ord(low) <= code <= ord(high):
                yield chr(other)


# --- Floats ----------------------------------------------------------------------------------------------------------


def from_float(value: float) -> str:
    """A float as PostgreSQL writes it: the fewest digits that tell it from its neighbours."""
    sign, digits, exponent = _shortest(value).normalize().as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits))
    first = len(written) + exponent - 1
    if value == 0 or _FIXED_ZEROS <= first < _FIXED_DIGITS:
        return f"{Decimal((sign if value else 0, digits, exponent)):f}"
    fraction = f".{written[1:]}" if len(written) > 1 else ""
    return f"{'-' if sign else ''}{written[0]}{fraction}e{'-' if first < 0 else '+'}{abs(first):02}"


def _shortest(value: float) -> Decimal:
    """The fewest digits that are nearer to the value than to its neighbours.

    Python also takes those right in the middle, which read as the even one of both; PostgreSQL does not rely on that.
    """
    written = Decimal(repr(value))
    with localcontext(_EXACT):
        exact = Decimal(value)
        middles = {(exact + Decimal(math.nextafter(value, end))) / 2 for end in (-math.inf, math.inf)}
        digits = len(written.as_tuple().digits)
        while written in middles and digits < _DIGITS_MAX:
            digits += 1
            written = Decimal(f"{value:.{digits - 1}e}")
    return written


# --- LIKE patterns ---------------------------------------------------------------------------------------------------
# A pattern becomes a regular expression in which each piece between two % is taken at its first occurrence and never
# tried again, so that no pattern takes long. The odd case is a pattern that ends with a lone escape character: it
# matches nothing, and PostgreSQL raises only when it gets there with text left, so that is what happens here.

PATTERNS_MAX: Final = 256


class _Pattern(NamedTuple):
    regex: re.Pattern[str]
    # Set when the pattern ends with a lone escape: how much text must be left after the match to get there.
    left_min: int | None = None


def like(text: str, pattern: str, escape: str) -> int:
    """Return whether the text is like the pattern."""
    regex, left_min = _pattern(pattern, escape)
    if left_min is None:
        return regex.fullmatch(text) is not None
    begun = regex.match(text)
    if begun is not None and len(text) - begun.end() >= left_min:
        raise InvalidValue("a LIKE pattern ends with its escape character.", fix="Double it.")
    return False


def ilike(text: str, pattern: str, escape: str) -> int:
    """The same without regard to case; the escape character itself has one."""
    return like(lower(text), _small_pattern(pattern, escape), "\\")


@lru_cache(maxsize=PATTERNS_MAX)
def _small_pattern(pattern: str, escape: str) -> str:
    """Return the pattern in small letters, with a backslash as its escape character."""
    if escape == "\\":
        return lower(pattern)
    written: list[str] = []
    escaped = False
    for letter in pattern:
        if letter == escape and not escaped:
            written.append("\\")
            escaped = True
            continue
        written.append("\\\\" if letter == "\\" and not escaped else letter)
        escaped = False
    return lower("".join(written))


@lru_cache(maxsize=PATTERNS_MAX)
def _pattern(pattern: str, escape: str) -> _Pattern:
    segments: list[list[str]] = [[]]
    remaining = iter(pattern)
    for letter in remaining:
        if letter == escape:
            following = next(remaining, None)
            if following is None:
                return _unfinished(segments)
            segments[-1].append(re.escape(following))
        elif letter == "%":
            segments.append([])
        else:
            segments[-1].append("." if letter == "_" else re.escape(letter))
    first, *rest = map("".join, segments)
    if not rest:
        return _Pattern(re.compile(first, re.DOTALL))
    *middle, last = rest
    return _Pattern(re.compile(f"{first}{_skipping(middle)}.*{last}", re.DOTALL))


def _skipping(segments: list[str]) -> str:
    return "".join(f"(?>.*?{segment})" for segment in segments if segment)


def _unfinished(segments: list[list[str]]) -> _Pattern:
    # After a %, the escape is evaluated as soon as there is any text, and enough of it for each _ between the two.
    skipped = 0
    after_any = False
    while len(segments) > 1 and set(segments[-1]) <= {"."}:
        skipped += len(segments.pop())
        after_any = True
    first, *rest = map("".join, segments)
    left_min = max(1, skipped) if after_any else 1
    return _Pattern(re.compile(first + _skipping(rest), re.DOTALL), left_min)


# --- Quoting ---------------------------------------------------------------------------------------------------------


def _quote_literal(text: str) -> str:
    """Return the text as a literal of PostgreSQL."""
    quoted = text.replace("'", "''")
    return f"E'{quoted.replace(chr(92), chr(92) * 2)}'" if "\\" in quoted else f"'{quoted}'"


@lru_cache(maxsize=1_000)
def _quote_name(name: str) -> str:
    """quote_ident(): in quotes if PostgreSQL would not read the name without them."""
    return name if _PLAIN_NAME.fullmatch(name) and _is_unreserved(name) else quoted_name(name)


def _is_unreserved(name: str) -> bool:
    """Return whether a word may be a name everywhere: of a table, and of a function."""
    try:
        for statement in (f"TABLE {name}", f"CREATE FUNCTION {name}() RETURNS a"):
            parse(statement)
    except DialectError:
        return False
    return True


_PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_FORMAT: Final = re.compile(r"%(?:(%)|(?:([0-9]+)\$)?(-*)([0-9]*)(.?))", re.DOTALL)


def _format(template: StoredValue, *values: StoredValue) -> str | None:
    """format(): %s, %I and %L, with a place and a width; the values are texts already."""
    if not isinstance(template, str):
        return None
    following = 0

    def replaced(found: re.Match[str]) -> str:
        nonlocal following
        percent, place, minus, width, kind = found.groups()
        if percent:
            return "%"
        if kind == "*":
            raise refuse("%* in format().", fix="Write the width.")
        if kind not in {"s", "I", "L"}:
            raise InvalidValue(f"unrecognized format() type specifier {kind!r}.", fix="Use %s, %I or %L; %% is %.")
        following = following + 1 if place is None else int(place)
        if following < 1 or following > len(values):
            raise InvalidValue("too few arguments for format().", fix="Pass one for each place.")
        value = values[following - 1]
        if kind == "I":
            if value is None:
                raise InvalidValue("NULL as a name in format().", fix="Pass a text for %I.")
            value = _quote_name(str(value))
        if kind == "L":
            value = "NULL" if value is None else _quote_literal(str(value))
        text = "" if value is None else str(value)
        length = int(width or 0)
        return _bounded(length, lambda: text.ljust(length) if minus else text.rjust(length))

    return _FORMAT.sub(replaced, template)


# --- Bytes -----------------------------------------------------------------------------------------------------------

_ASCII_MAX: Final = 127
_LINE: Final = 76
"""The length of a line in base64."""


def _encode(value: bytes, form: str) -> str:
    """Return bytes as text: hex, base64 or escape."""
    match form.lower():
        case "hex":
            return value.hex()
        case "base64":
            return re.sub(f"(.{{{_LINE}}})(?=.)", r"\1\n", base64.b64encode(value).decode())
        case "escape":
            return "".join(
                f"\\{byte:03o}" if byte == 0 or byte > _ASCII_MAX else chr(byte).replace("\\", "\\\\") for byte in value
            )
        case _:
            raise InvalidValue(f"unrecognized encoding: {form!r}.", fix="Use hex, base64 or escape.")


def _decode(text: str, form: str) -> bytes:
    """Return the bytes that a text stands for."""
    if form.lower() not in _DECODERS:
        raise InvalidValue(f"unrecognized encoding: {form!r}.", fix="Use hex, base64 or escape.")
    try:
        return _DECODERS[form.lower()](text)
    except ValueError as error:
        raise InvalidValue(f"invalid {form} text.", fix="Correct the text.") from error


def _from_hexadecimal(text: str) -> bytes:
    # Blanks may stand between bytes; elsewhere PostgreSQL takes none.
    if not re.fullmatch(r"[ \n\t\r]*(?:[0-9a-fA-F]{2}[ \n\t\r]*)*", text):
        raise ValueError(text)
    return bytes.fromhex(text)


def _from_escapes(text: str) -> bytes:
    # A backslash stands before three octal digits or another one.
    if "\\" in re.sub(r"\\\\|\\[0-3][0-7]{2}", "", text):
        raise ValueError(text)
    return re.sub(rb"\\(\\|[0-7]{3})", _unescaped, text.encode())


_DECODERS: Final[dict[str, Callable[[str], bytes]]] = {
    "hex": _from_hexadecimal,
    "base64": lambda text: base64.b64decode("".join(text.split()), validate=True),
    "escape": _from_escapes,
}


def _unescaped(found: re.Match[bytes]) -> bytes:
    return found[1] if found[1] == b"\\" else bytes([int(found[1], 8)])


def _byte_at(value: bytes, place: int) -> int:
    """get_byte."""
    if not 0 <= place < len(value):
        raise InvalidValue(f"index {place} out of valid range, 0..{len(value) - 1}.", fix="Count from zero.")
    return value[place]


def _with_byte(value: bytes, place: int, byte: int) -> bytes:
    """set_byte."""
    _byte_at(value, place)
    return value[:place] + bytes([byte & 0xFF]) + value[place + 1 :]


def _convert_to(text: str, name: str) -> bytes:
    _check_encoding(name)
    return text.encode()


def _convert_from(value: bytes, name: str) -> str:
    _check_encoding(name)
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise InvalidValue("invalid bytes for UTF8.", fix="Store text in UTF-8.") from error
    if "\0" in text:
        raise InvalidValue("NUL in a text.", fix="Use bytea.")
    return text


def _check_encoding(name: str) -> None:
    if name.lower().replace("-", "") not in {"utf8", "unicode"}:
        raise refuse(f"the encoding {name[:20]!r}.", fix="Use UTF8.")


def _digest(name: str) -> Callable[[bytes], bytes]:
    return lambda value: hashlib.new(name, value).digest()


def _md5(value: str | bytes) -> str:
    return hashlib.md5(value.encode() if isinstance(value, str) else value, usedforsecurity=False).hexdigest()


def _uuid_to_text(value: bytes) -> str:
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


# --- Entries ---------------------------------------------------------------------------------------------------------


def _like(name: str, *, negated: bool) -> Callable[[Sequence[Term], Type], Term]:
    def build(terms: Sequence[Term], result: Type) -> Term:
        matched = call(name, result, *terms, extra="'\\'")
        return combined(f"NOT {matched.text}", result, terms) if negated else matched

    return build


def _number_to_text(terms: Sequence[Term], result: Type) -> Term:
    [value] = terms
    if value.literal is not None and value.type.name == "numeric":
        return Term(value.text, result, literal=value.literal, nullable=False)
    if value.type.name == "numeric":
        # The concatenation drops the column's collation, which a cast would keep.
        return combined(f"{value.operand} || ''", result, terms)
    return combined(f"CAST({value.checked.text} AS TEXT)", result, terms, atomic=True)


ENTRIES: Final[tuple[Entry, ...]] = (
    written("operator", "||", "text, text", "text", "{0} || {1}"),
    operator("||", "bytea, bytea", "bytea", bytes.__add__, sqlite="bytea_join"),
    *(
        built("operator", f"{'!' if negated else ''}~~{more}", takes, "bool", _like(sqlite, negated=negated))
        for takes in ("text, text", "bpchar, text")
        for more, sqlite in (("", "interlock_like"), ("*", "interlock_ilike"))
        for negated in (False, True)
    ),
    operator("^@", "text, text", "bool", str.startswith, sqlite="starts_with"),
    internal("like", "text, text, text", "bool", like),
    internal("ilike", "text, text, text", "bool", ilike),
    internal("varchar", "text, int4", "text", varchar),
    internal("char", "text, int4", "bpchar", char),
    internal("char_cut", "text, int4", "bpchar", char_cut),
    # Blanks at the end of a char(n) have no meaning but where it is shown or matched with a pattern.
    *(written("cast", "", "bpchar", target, "rtrim({0}, ' ')") for target in ("text", "varchar")),
    *(written("cast", "", source, "bpchar", "{0}") for source in ("text", "varchar")),
    *(
        written("function", name, "bpchar", "int4", "length(rtrim({0}, ' '))")
        for name in ("length", "char_length", "character_length")
    ),
    *(
        written("function", name, kind, "int4", "length({0})")
        for name, kind in (
            ("length", "text"),
            ("length", "bytea"),
            ("char_length", "text"),
            ("character_length", "text"),
        )
    ),
    *(function("octet_length", kind, "int4", _octet_length) for kind in ("text", "bytea", "bpchar")),
    *(function("bit_length", kind, "int4", lambda value: 8 * _octet_length(value)) for kind in ("text", "bytea")),
    function("lower", "text", "text", lower),
    function("upper", "text", "text", upper),
    function("initcap", "text", "text", initcap),
    function("casefold", "text", "text", fold),
    *(
        entry
        for name, sqlite, body in (
            ("btrim", "trim", _trim),
            ("ltrim", "trim_left", _trim_left),
            ("rtrim", "trim_right", _trim_right),
        )
        for entry in (
            function(name, "text", "text", body, sqlite=sqlite),
            function(name, "text, text", "text", body, sqlite=f"{sqlite}_of"),
            function(name, "bytea, bytea", "bytea", body, sqlite=f"bytea_{name}"),
        )
    ),
    function("left", "text, int4", "text", left),
    function("right", "text, int4", "text", right),
    function("lpad", "text, int4", "text", pad_left, sqlite="pad_left"),
    function("lpad", "text, int4, text", "text", pad_left, sqlite="pad_left_with"),
    function("rpad", "text, int4", "text", _pad_right, sqlite="pad_right"),
    function("rpad", "text, int4, text", "text", _pad_right, sqlite="pad_right_with"),
    function("md5", "text", "text", _md5),
    function("md5", "bytea", "text", _md5, sqlite="md5_of_bytes"),
    *(function(name, "bytea", "bytea", _digest(name)) for name in ("sha224", "sha256", "sha384", "sha512")),
    function("position", "text, text", "int4", _position),
    function("strpos", "text, text", "int4", _position, sqlite="position"),
    function("position", "bytea, bytea", "int4", _position, sqlite="bytea_position"),
    function("repeat", "text, int4", "text", repeat),
    function("replace", "text, text, text", "text", replace),
    function("reverse", "text", "text", _reverse),
    function("reverse", "bytea", "bytea", _reverse, sqlite="bytea_reverse"),
    function("split_part", "text, text, int4", "text", split_part),
    function("starts_with", "text, text", "bool", str.startswith),
    *(
        function(name, f"{kind}, int4{rest}", kind, substring, sqlite=f"{prefix}substring{suffix}")
        for name in ("substr", "substring")
        for kind, prefix in (("text", ""), ("bytea", "bytea_"))
        for rest, suffix in (("", "_from"), (", int4", ""))
    ),
    function("translate", "text, text, text", "text", _translate),
    *(function("overlay", f"text, text, int4{rest}", "text", _overlay) for rest in ("", ", int4")),
    function("ascii", "text", "int4", _code_point),
    function("chr", "int4", "text", _character),
    function("quote_literal", "text", "text", _quote_literal),
    function("quote_ident", "text", "text", _quote_name),
    function(
        "quote_nullable", "text", "text", lambda text: "NULL" if text is None else _quote_literal(str(text)), null=True
    ),
    internal("format", "any", "text", _format, null=True),
    function("convert_to", "text, name", "bytea", _convert_to),
    function("convert_from", "bytea, name", "text", _convert_from),
    function("crc32", "bytea", "int8", zlib.crc32),
    function("bit_count", "bytea", "int8", lambda value: int.from_bytes(value).bit_count()),
    function("get_byte", "bytea, int4", "int4", _byte_at),
    function("set_byte", "bytea, int4, int4", "bytea", _with_byte),
    function("encode", "bytea, text", "text", _encode),
    function("decode", "text, text", "bytea", _decode),
    *(
        entry
        for target in ("text", "varchar")
        for entry in (
            *(built("cast", "", name, target, _number_to_text) for name in ("int2", "int4", "int8", "numeric")),
            written("cast", "", "bool", target, "CASE {0} WHEN 1 THEN 'true' WHEN 0 THEN 'false' END"),
            cast("uuid", target, _uuid_to_text, sqlite="uuid_to_text"),
            cast("float8", target, from_float, sqlite="float8_to_text"),
            cast("bytea", target, lambda value: f"\\x{value.hex()}", sqlite="bytea_to_text"),
        )
    ),
)

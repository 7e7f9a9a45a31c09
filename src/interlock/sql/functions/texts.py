"""Functions on text as PostgreSQL has them, counted in characters.

Each takes stored values and gives a stored value. None of them sees NULL but `concat` and its kin, which leave it out.

Sections: characters, LIKE patterns, further functions, entries.
"""

import base64
import binascii
import hashlib
import math
import re
import zlib
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Final, NamedTuple

from interlock.errors import TransactionError
from interlock.sql.functions import letters
from interlock.sql.registry import built, cast, function, operator, written
from interlock.sql.scope import Term, call, combined
from interlock.sql.types import INTEGER_RANGE, Type, refuse
from interlock.sql.values import StoredValue

TEXT_LENGTH_MAX: Final = 10_000_000
_FIXED_DIGITS: Final = 15  # PostgreSQL writes a float with an exponent from here on.
_FIXED_ZEROS: Final = -4
_DIGITS_MAX: Final = 17
_EXACT: Final = Context(prec=1200)  # The middle of two floats has no more digits than that.
_INT4_MIN: Final = -(2**31)


def position(text: str, sought: str) -> int:
    """Return the position of one text in the other, counted from one; zero if absent."""
    return text.find(sought) + 1


def substring(text: str, start: int, length: int | None = None) -> str:
    """Return the characters from a position on; positions before the first count towards the length, and are empty."""
    if length is None:
        return text[max(start - 1, 0) :]
    if length < 0:
        raise TransactionError(f"negative substring length {length}.", fix="Pass zero or more.")
    end = start + length - 1
    return text[max(start - 1, 0) : end] if end > 0 else ""


def left(text: str, count: int) -> str:
    """The first characters, or all but the last ones."""
    return text[:count]


def right(text: str, count: int) -> str:
    """The last characters, or all but the first ones."""
    if count < 0:
        return text[-count:] if count > _INT4_MIN else text  # PostgreSQL's minus overflows there.
    return text[max(len(text) - count, 0) :]


def trim(text: str, letters: str = " ") -> str:
    """The text without those characters at either end."""
    return text.strip(letters) if letters else text


def trim_left(text: str, letters: str = " ") -> str:
    """The text without those characters at its beginning."""
    return text.lstrip(letters) if letters else text


def trim_right(text: str, letters: str = " ") -> str:
    """The text without those characters at its end."""
    return text.rstrip(letters) if letters else text


def replace(text: str, old: str, new: str) -> str:
    """The text with each occurrence of the one replaced by the other."""
    return _bounded(len(text) + text.count(old) * len(new), lambda: text.replace(old, new)) if old else text


def repeat(text: str, count: int) -> str:
    """Return the text repeated."""
    return _bounded(len(text) * max(count, 0), lambda: text * max(count, 0))


def _bounded(length: int, build: Callable[[], str]) -> str:
    if length > TEXT_LENGTH_MAX:
        raise refuse(f"a text of {length:,} characters; the limit is {TEXT_LENGTH_MAX:,}.", fix="Use less.")
    return build()


def pad_left(text: str, length: int, fill: str = " ") -> str:
    """The text filled up at its beginning, or cut off, to that length."""
    return _filling(text, length, fill) + text[: max(length, 0)]


def pad_right(text: str, length: int, fill: str = " ") -> str:
    """The text filled up at its end, or cut off, to that length."""
    return text[: max(length, 0)] + _filling(text, length, fill)


def _filling(text: str, length: int, fill: str) -> str:
    missing = length - len(text)
    return _bounded(missing, lambda: (fill * (missing // len(fill) + 1))[:missing]) if missing > 0 and fill else ""


def reverse(text: str) -> str:
    """The characters in the other order."""
    return text[::-1]


def split_part(text: str, delimiter: str, place: int) -> str:
    """The part at that place between two delimiters; a negative place counts from the end."""
    if place == 0:
        raise TransactionError("split_part() of field 0.", fix="Fields are counted from 1, or from -1 at the end.")
    parts = text.split(delimiter) if delimiter else [text]
    if not text or abs(place) > len(parts):
        return ""
    return parts[place - 1 if place > 0 else place]


def starts_with(text: str, prefix: str) -> int:
    """Return whether the text begins with the prefix."""
    return text.startswith(prefix)


def octet_length(value: str | bytes) -> int:
    """Return the number of bytes."""
    return len(value.encode() if isinstance(value, str) else value)


def bit_length(value: str | bytes) -> int:
    """Return the number of bits."""
    return 8 * octet_length(value)


def md5(text: str) -> str:
    """The digest in hexadecimal digits."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def concat(*texts: StoredValue) -> str:
    """The texts one after the other; NULL is nothing."""
    return "".join(_without_nulls(texts))


def concat_ws(separator: StoredValue, *texts: StoredValue) -> str | None:
    """The texts with a separator between each two; NULL is left out."""
    return separator.join(_without_nulls(texts)) if isinstance(separator, str) else None


def _without_nulls(texts: Sequence[StoredValue]) -> list[str]:
    return [text for text in texts if isinstance(text, str)]


def from_bytes(value: bytes) -> str:
    """Bytes as PostgreSQL writes them."""
    return f"\\x{value.hex()}"


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
        raise TransactionError("a LIKE pattern ends with its escape character.", fix="Double it.")
    return False


def ilike(text: str, pattern: str, escape: str) -> int:
    """The same without regard to case; the escape character itself has one."""
    return like(letters.lower(text), _small_pattern(pattern, escape), "\\")


@lru_cache(maxsize=PATTERNS_MAX)
def _small_pattern(pattern: str, escape: str) -> str:
    """Return the pattern in small letters, with a backslash as its escape character."""
    if escape == "\\":
        return letters.lower(pattern)
    written: list[str] = []
    escaped = False
    for letter in pattern:
        if letter == escape and not escaped:
            written.append("\\")
            escaped = True
            continue
        written.append("\\\\" if letter == "\\" and not escaped else letter)
        escaped = False
    return letters.lower("".join(written))


@lru_cache(maxsize=PATTERNS_MAX)
def _pattern(pattern: str, escape: str) -> _Pattern:
    segments: list[list[str]] = [[]]
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            following = next(letters, None)
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


# --- Further functions -----------------------------------------------------------------------------------------------


def varchar(text: str, length: int) -> str:
    """Return text for a column of limited length: too many characters are an error, too many spaces are cut off."""
    if len(text) <= length:
        return text
    if text[length:].strip(" "):
        raise TransactionError(
            f"text of {len(text)} characters is too long for varchar({length}).", fix="Shorten it, or widen the column."
        )
    return text[:length]


def translate(text: str, old: str, new: str) -> str:
    """Return the text with each character of `old` replaced by the one at its place in `new`, or removed."""
    table: dict[int, str | None] = {}
    for place, letter in enumerate(old):
        table.setdefault(ord(letter), new[place] if place < len(new) else None)
    return text.translate(table)


def overlay(text: str, new: str, start: int, count: int | None = None) -> str:
    """Return the text with a part of it replaced."""
    if start <= 0:
        raise TransactionError("negative substring length not allowed.", fix="Begin at 1 or later.")
    length = len(new) if count is None else count
    if start + length > INTEGER_RANGE["int4"][1]:
        raise TransactionError("integer out of range.", fix="Begin earlier, or replace less.")
    return text[: start - 1] + new + text[max(start - 1 + length, 0) :]


def code_point(text: str) -> int:
    """Return the code of the first character; zero without one: ascii()."""
    return ord(text[0]) if text else 0


def character(code: int) -> str:
    """Return the character of a code: chr()."""
    if code == 0 or code < 0 or code > _CODE_MAX or _SURROGATES[0] <= code <= _SURROGATES[1]:
        raise TransactionError(f"requested character not valid: chr({code}).", fix="Pass the code of a character.")
    return chr(code)


_CODE_MAX: Final = 0x10FFFF
_SURROGATES: Final = (0xD800, 0xDFFF)


def quote_literal(text: str) -> str:
    """Return the text as a literal of PostgreSQL."""
    quoted = text.replace("'", "''")
    return f"E'{quoted.replace(chr(92), chr(92) * 2)}'" if "\\" in quoted else f"'{quoted}'"


def quote_nullable(text: StoredValue) -> str:
    """Return the text as a literal of PostgreSQL, NULL included."""
    return "NULL" if text is None else quote_literal(str(text))


_FORMAT: Final = re.compile(r"%(?:(%)|(?:([0-9]+)\$)?(-*)([0-9]*)(.?))", re.DOTALL)


def formatted(template: StoredValue, *values: StoredValue) -> str | None:
    """format(): %s and %L, with a place and a width; the values are texts already."""
    if not isinstance(template, str):
        return None
    following = 0

    def replaced(found: re.Match[str]) -> str:
        nonlocal following
        percent, place, minus, width, kind = found.groups()
        if percent:
            return "%"
        if kind in {"I", "*"}:
            raise refuse(f"%{kind} in format().", fix="Use %s and %L, with a written width.")
        if kind not in {"s", "L"}:
            raise TransactionError(f"unrecognized format() type specifier {kind!r}.", fix="Use %s or %L; %% is %.")
        following = following + 1 if place is None else int(place)
        if following < 1 or following > len(values):
            raise TransactionError("too few arguments for format().", fix="Pass one for each place.")
        value = values[following - 1]
        if kind == "L":
            value = "NULL" if value is None else quote_literal(str(value))
        text = "" if value is None else str(value)
        length = int(width or 0)
        return _bounded(length, lambda: text.ljust(length) if minus else text.rjust(length))

    return _FORMAT.sub(replaced, template)


def encode(value: bytes, form: str) -> str:
    """Return bytes as text: hex, base64 or escape."""
    match form.lower():
        case "hex":
            return value.hex()
        case "base64":
            return "\n".join(_lines(base64.b64encode(value).decode()))
        case "escape":
            parts = [f"\\{byte:03o}" if byte == 0 or byte > _ASCII_MAX else chr(byte) for byte in value]
            return "".join("\\\\" if part == "\\" else part for part in parts)
        case _:
            raise TransactionError(f"unrecognized encoding: {form!r}.", fix="Use hex, base64 or escape.")


def _lines(text: str) -> list[str]:
    return [text[place : place + _LINE] for place in range(0, len(text), _LINE)]


_ASCII_MAX: Final = 127
_LINE: Final = 76


def _between_bytes(text: str) -> str:
    """Return hexadecimal digits without the blanks between bytes; elsewhere PostgreSQL takes none."""
    if not re.fullmatch(r"[ \n\t\r]*(?:[0-9a-fA-F]{2}[ \n\t\r]*)*", text):
        raise ValueError(text)
    return text


def decode(text: str, form: str) -> bytes:
    """Return the bytes that a text stands for: hex or base64."""
    try:
        match form.lower():
            case "hex":
                return bytes.fromhex(_between_bytes(text))
            case "base64":
                return base64.b64decode("".join(text.split()), validate=True)
            case "escape":
                return _unescaped(text)
            case _:
                raise TransactionError(f"unrecognized encoding: {form!r}.", fix="Use hex, base64 or escape.")
    except (ValueError, binascii.Error) as error:
        raise TransactionError(f"invalid {form} text.", fix="Correct the text.") from error


def _unescaped(text: str) -> bytes:
    """Return the bytes of a text where a backslash stands before three octal digits or another one."""
    if re.sub(r"\\\\|\\[0-3][0-7]{2}", "", text).count("\\"):
        raise ValueError(text)
    return re.sub(
        rb"\\(\\|[0-7]{3})", lambda found: found[1] if found[1] == b"\\" else bytes([int(found[1], 8)]), text.encode()
    )


def _turned(value: bytes) -> bytes:
    return value[::-1]


def _position(value: bytes, sought: bytes) -> int:
    return value.find(sought) + 1


def bit_count(value: bytes) -> int:
    """Return the number of bits that are set."""
    return int.from_bytes(value).bit_count()


def byte_at(value: bytes, place: int) -> int:
    """get_byte."""
    if not 0 <= place < len(value):
        raise TransactionError(f"index {place} out of valid range, 0..{len(value) - 1}.", fix="Count from zero.")
    return value[place]


def with_byte(value: bytes, place: int, byte: int) -> bytes:
    """set_byte."""
    byte_at(value, place)
    return value[:place] + bytes([byte & 0xFF]) + value[place + 1 :]


def _encoded(text: str, name: str) -> bytes:
    _check_encoding(name)
    return text.encode()


def _decoded(value: bytes, name: str) -> str:
    _check_encoding(name)
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise TransactionError("invalid bytes for UTF8.", fix="Store text in UTF-8.") from error
    if "\0" in text:
        raise TransactionError("NUL in a text.", fix="Use bytea.")
    return text


def _check_encoding(name: str) -> None:
    if name.lower().replace("-", "") not in {"utf8", "unicode"}:
        raise refuse(f"the encoding {name[:20]!r}.", fix="Use UTF8.")


def digest(name: str) -> Callable[[bytes], bytes]:
    """Return one of sha224, sha256, sha384, sha512."""
    return lambda value: hashlib.new(name, value).digest()


def md5_of_bytes(value: bytes) -> str:
    """Return the digest of bytes in hexadecimal digits."""
    return hashlib.md5(value, usedforsecurity=False).hexdigest()


def uuid_to_text(value: bytes) -> str:
    """Return a uuid in its usual form."""
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _bytes_part(value: bytes, start: int, length: int | None = None) -> bytes:
    if length is None:
        return value[max(start - 1, 0) :]
    if length < 0:
        raise TransactionError(f"negative substring length {length}.", fix="Pass zero or more.")
    end = start + length - 1
    return value[max(start - 1, 0) : end] if end > 0 else b""


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


def _join_bytes(left: bytes, right: bytes) -> bytes:
    return left + right


ENTRIES: Final = (
    written("operator", "||", "text, text", "text", "{0} || {1}"),
    operator("||", "bytea, bytea", "bytea", _join_bytes, sqlite="bytea_join"),
    built("operator", "~~", "text, text", "bool", _like("interlock_like", negated=False)),
    built("operator", "!~~", "text, text", "bool", _like("interlock_like", negated=True)),
    built("operator", "~~*", "text, text", "bool", _like("interlock_ilike", negated=False)),
    built("operator", "!~~*", "text, text", "bool", _like("interlock_ilike", negated=True)),
    operator("^@", "text, text", "bool", starts_with, sqlite="starts_with"),
    function("interlock like", "text, text, text", "bool", like, sqlite="like"),
    function("interlock ilike", "text, text, text", "bool", ilike, sqlite="ilike"),
    function("interlock varchar", "text, int4", "text", varchar, sqlite="varchar"),
    written("function", "length", "text", "int4", "length({0})"),
    written("function", "length", "bytea", "int4", "length({0})"),
    written("function", "char_length", "text", "int4", "length({0})"),
    written("function", "character_length", "text", "int4", "length({0})"),
    function("octet_length", "text", "int4", octet_length),
    function("octet_length", "bytea", "int4", octet_length),
    function("bit_length", "text", "int4", bit_length),
    function("bit_length", "bytea", "int4", bit_length),
    *(
        function(name, "text", "text", body)
        for name, body in (("lower", letters.lower), ("upper", letters.upper), ("initcap", letters.initcap))
    ),
    function("btrim", "text", "text", trim, sqlite="trim"),
    function("btrim", "text, text", "text", trim, sqlite="trim_of"),
    function("ltrim", "text", "text", trim_left, sqlite="trim_left"),
    function("ltrim", "text, text", "text", trim_left, sqlite="trim_left_of"),
    function("rtrim", "text", "text", trim_right, sqlite="trim_right"),
    function("rtrim", "text, text", "text", trim_right, sqlite="trim_right_of"),
    function("left", "text, int4", "text", left),
    function("right", "text, int4", "text", right),
    function("lpad", "text, int4", "text", pad_left, sqlite="pad_left"),
    function("lpad", "text, int4, text", "text", pad_left, sqlite="pad_left_with"),
    function("rpad", "text, int4", "text", pad_right, sqlite="pad_right"),
    function("rpad", "text, int4, text", "text", pad_right, sqlite="pad_right_with"),
    function("md5", "text", "text", md5),
    function("md5", "bytea", "text", md5_of_bytes, sqlite="md5_of_bytes"),
    *(function(name, "bytea", "bytea", digest(name)) for name in ("sha224", "sha256", "sha384", "sha512")),
    function("position", "text, text", "int4", position),
    function("strpos", "text, text", "int4", position, sqlite="position"),
    function("repeat", "text, int4", "text", repeat),
    function("replace", "text, text, text", "text", replace),
    function("reverse", "text", "text", reverse),
    function("split_part", "text, text, int4", "text", split_part),
    function("starts_with", "text, text", "bool", starts_with),
    *(
        entry
        for name in ("substr", "substring")
        for entry in (
            function(name, "text, int4", "text", substring, sqlite="substring_from"),
            function(name, "text, int4, int4", "text", substring, sqlite="substring"),
            function(name, "bytea, int4", "bytea", _bytes_part, sqlite="bytea_substring_from"),
            function(name, "bytea, int4, int4", "bytea", _bytes_part, sqlite="bytea_substring"),
        )
    ),
    function("translate", "text, text, text", "text", translate),
    function("overlay", "text, text, int4", "text", overlay),
    function("overlay", "text, text, int4, int4", "text", overlay),
    function("ascii", "text", "int4", code_point),
    function("chr", "int4", "text", character),
    function("quote_literal", "text", "text", quote_literal),
    function("quote_nullable", "text", "text", quote_nullable, null=True),
    function("interlock format", "any", "text", formatted, sqlite="format", null=True),
    function("casefold", "text", "text", letters.fold),
    function("convert_to", "text, name", "bytea", _encoded),
    function("convert_from", "bytea, name", "text", _decoded),
    function("crc32", "bytea", "int8", zlib.crc32),
    function("bit_count", "bytea", "int8", bit_count),
    function("get_byte", "bytea, int4", "int4", byte_at),
    function("set_byte", "bytea, int4, int4", "bytea", with_byte),
    function("reverse", "bytea", "bytea", _turned, sqlite="bytea_reverse"),
    function("position", "bytea, bytea", "int4", _position, sqlite="bytea_position"),
    *(
        function(name, "bytea, bytea", "bytea", body, sqlite=f"bytea_{name}")
        for name, body in (("btrim", trim), ("ltrim", trim_left), ("rtrim", trim_right))
    ),
    function("encode", "bytea, text", "text", encode),
    function("decode", "text, text", "bytea", decode),
    *(
        built("cast", "", name, target, _number_to_text)
        for name in ("int2", "int4", "int8", "numeric")
        for target in ("text", "varchar")
    ),
    *(
        entry
        for target in ("text", "varchar")
        for entry in (
            written("cast", "", "bool", target, "CASE {0} WHEN 1 THEN 'true' WHEN 0 THEN 'false' END"),
            cast("uuid", target, uuid_to_text, sqlite="uuid_to_text"),
            cast("float8", target, from_float, sqlite="float8_to_text"),
            cast("bytea", target, from_bytes, sqlite="bytea_to_text"),
        )
    ),
)

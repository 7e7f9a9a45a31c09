"""D3: the bytes of the log, as docs/reference/object-log.md has them."""

import re
import struct
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import CorruptionError
from interlock.lanes.objectlog import format as wire
from interlock.lanes.objectlog import manifest as manifests

ROOT = Path(__file__).parents[4]
SAMPLES = Path(__file__).parent / "samples"

ENTRY = wire.LogObject(
    "group",
    bytes(range(16)),
    3,
    42,
    b"p" * 32,
    b"n" * 16,
    1_700_000_000_000_000,
    512,
    9,
    ((1, b"a" * 512), (9, b"b" * 512)),
)
FENCE = wire.LogObject("fence", bytes(range(16)), 4, 43, b"q" * 32, b"m" * 16, 1_700_000_000_000_001, 0, 0, ())
PART_TIME_US = 1_700_000_000_000_001
PART = wire.SnapshotPart(bytes(range(16)), 4, 43, b"h" * 32, b"s" * 16, 0, 2, 512, 1, b"c" * 1024)

entries = st.builds(
    lambda count, size, seq, epoch, time_us, seed: wire.LogObject(
        "group",
        seed * 16,
        epoch,
        seq,
        seed * 32,
        seed * 16,
        time_us,
        size,
        count,
        tuple((number + 1, seed * size) for number in range(count)),
    ),
    st.integers(1, 20),
    st.sampled_from([512, 4_096, 65_536]),
    st.integers(1, 2**63),
    st.integers(1, 2**63),
    st.integers(-(2**62), 2**62),
    st.binary(min_size=1, max_size=1),
)


@given(entries)
def test_what_is_written_is_read(entry: wire.LogObject) -> None:
    data = wire.encode_entry(entry)
    assert wire.decode_entry(data, "log/1") == entry
    assert wire.decode_header(data[: wire.HEADER_BYTES], "log/1") == entry._replace(pages=())


def test_a_fence_is_its_header_alone() -> None:
    data = wire.encode_entry(FENCE)
    assert len(data) == wire.HEADER_BYTES
    assert wire.decode_entry(data, "log/43") == FENCE


def test_a_part_is_read_as_it_was_written() -> None:
    assert wire.decode_part(wire.encode_part(PART), "snapshot/x") == PART


@pytest.mark.parametrize("data", [wire.encode_entry(ENTRY), wire.encode_entry(FENCE)])
def test_no_byte_can_change_unnoticed(data: bytes) -> None:
    for at in range(len(data)):
        spoilt = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(CorruptionError) as caught:
            wire.decode_entry(spoilt, "log/00000000000000000042")
        assert "log/00000000000000000042" in str(caught.value)


def test_no_byte_of_a_part_can_change_unnoticed() -> None:
    data = wire.encode_part(PART)
    for at in range(len(data)):
        with pytest.raises(CorruptionError):
            wire.decode_part(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "snapshot/x")


@pytest.mark.parametrize("length", [0, 1, wire.HEADER_BYTES - 1, wire.HEADER_BYTES + 3])
def test_what_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(CorruptionError):
        wire.decode_entry(wire.encode_entry(ENTRY)[:length], "log/42")
    with pytest.raises(CorruptionError):
        wire.decode_part(wire.encode_part(PART)[:length], "snapshot/x")


def _with_valid_checksum(header: bytes, body: bytes) -> bytes:
    return header + wire._digest(header, body) + body


def test_another_version_is_refused_with_the_way_out() -> None:
    data = bytearray(wire.encode_entry(FENCE))
    data[6:8] = struct.pack(">H", 2)
    with pytest.raises(CorruptionError, match="format version 2") as caught:
        wire.decode_entry(bytes(data), "log/43")
    assert "newer" in caught.value.fix


def test_a_length_that_lies_takes_no_memory() -> None:
    data = wire.encode_entry(ENTRY)
    header = bytearray(data[:116])
    header[104:108] = struct.pack(">I", 2**32 - 1)
    with pytest.raises(CorruptionError, match="claims"):
        wire.decode_entry(_with_valid_checksum(bytes(header), data[148:]), "log/42")


def test_a_body_that_unpacks_to_something_else_is_refused() -> None:
    data = wire.encode_entry(ENTRY)
    header = bytearray(data[:116])
    header[104:108] = struct.pack(">I", 3)
    with pytest.raises(CorruptionError, match="instead of"):
        wire.decode_entry(_with_valid_checksum(bytes(header), data[148:]), "log/42")
    header[104:108] = struct.pack(">I", 1)
    with pytest.raises(CorruptionError):
        wire.decode_entry(_with_valid_checksum(bytes(header), data[148:]), "log/42")


def test_a_body_that_is_no_zstandard_frame_is_refused() -> None:
    data = wire.encode_entry(ENTRY)
    body = b"x" * len(data[148:])
    with pytest.raises(CorruptionError, match="unpacked"):
        wire.decode_entry(_with_valid_checksum(data[:116], body), "log/42")


def test_an_unknown_kind_is_refused() -> None:
    data = bytearray(wire.encode_entry(FENCE))
    data[8] = 9
    with pytest.raises(CorruptionError, match="unknown kind, 9"):
        wire.decode_header(bytes(data), "log/43")


@pytest.mark.parametrize(("name", "entry"), [("group", ENTRY), ("fence", FENCE)])
def test_samples_of_every_version_are_read(name: str, entry: wire.LogObject) -> None:
    data = bytes.fromhex((SAMPLES / f"v1-{name}.hex").read_text())
    assert wire.decode_entry(data, name) == entry


def test_the_sample_of_a_snapshot_is_read() -> None:
    assert wire.decode_part(bytes.fromhex((SAMPLES / "v1-part.hex").read_text()), "part") == PART


def test_the_sample_of_a_manifest_is_read() -> None:
    manifest = manifests.decode((SAMPLES / "v1-manifest.json").read_bytes())
    owner = manifests.LeaseHolder(id="ab" * 16, pid=4711, host="shop-1", cache="cd" * 16)
    snapshot = manifests.LaneSnapshot(
        seq=43,
        hash="68" * 32,
        nonce="73" * 16,
        parts=2,
        pages=4,
        page_bytes=512,
        bytes=900,
        time_us=1_700_000_000_000_001,
    )
    assert manifest == manifests.Manifest(
        database=bytes(range(16)).hex(),
        revision=7,
        nonce="6e" * 16,
        epoch=4,
        owner=owner,
        lease_s=10.0,
        snapshots=(snapshot,),
        kept=43,
        collected=42,
    )


def _table(title: str) -> list[tuple[int, int]]:
    page = (ROOT / "docs/reference/object-log.md").read_text()
    section = page.split(f"## {title}")[1].split("\n## ")[0]
    return [(int(at), int(size)) for at, size in re.findall(r"^\| (\d+) \| (\d+) \|", section, re.MULTILINE)]


@pytest.mark.parametrize(
    ("title", "layout"), [("A slot of the log", wire._HEADER), ("A part of a snapshot", wire._SNAPSHOT)]
)
def test_the_page_has_every_byte(title: str, layout: struct.Struct) -> None:
    rows = _table(title)
    assert [at for at, _ in rows] == [sum(size for _, size in rows[:number]) for number in range(len(rows))]
    assert sum(size for _, size in rows[:-1]) == layout.size
    sizes = [size for _, size in rows[:-1]]
    codes = re.findall(r"\d*[sHBIQqx]", layout.format.lstrip(">"))
    expanded = [
        struct.calcsize(f">{letter}") if letter not in "sx" else int(number or 1)
        for code in codes
        for number, letter in [(code[:-1], code[-1])]
        for _ in range(1 if letter in "sx" else int(number or 1))
    ]
    assert sizes == expanded


def test_several_threads_pack_and_unpack_at_once() -> None:
    # What packs is kept for the next one; two threads with the same one would mix up their pages.
    entries = [ENTRY._replace(seq=seq, pages=((1, bytes([seq]) * 512 * 128),), page_bytes=65_536) for seq in range(64)]
    with ThreadPoolExecutor(8) as threads:
        packed = list(threads.map(wire.encode_entry, entries))
        assert list(threads.map(wire.decode_entry, packed, repeat("log/1"))) == entries

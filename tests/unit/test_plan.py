"""The plan's file: what is written is read again, wherever it is cut it is refused, and nothing half-written stays."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plans import TABLE, edited
from webrt import plan as P
from webrt import planfile, planjson
from webrt.errors import PlanError, WebrtError
from webrt.plan import Constant, Plan
from webrt.validate import validate

DATA = (bytes(range(16)), b"\x01\x02\x03")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return replace(planjson.plan_from_json(edited([])), data=lambda i: DATA[i])


@pytest.fixture(scope="module")
def file(plan: Plan) -> bytes:
    return planfile.dump(plan)


def parts(file: bytes) -> tuple[dict[str, object], bytes]:
    """Header and data of a safetensors file."""
    (length,) = struct.unpack("<Q", file[:8])
    return json.loads(file[8 : 8 + length]), file[8 + length :]


def test_bytes_and_files_are_read_as_written(plan: Plan, file: bytes, tmp_path: Path) -> None:
    planfile.save(plan, tmp_path / "a.webrt")
    assert (tmp_path / "a.webrt").read_bytes() == file
    for loaded in (
        planfile.load(file),
        planfile.load(memoryview(file)),
        planfile.load(tmp_path / "a.webrt"),
        planfile.load(str(tmp_path / "a.webrt")),
    ):
        assert loaded == plan
        assert [bytes(loaded.constant_bytes(i)) for i in range(2)] == list(DATA)
        assert planfile.dump(loaded) == file


def test_the_file_is_in_the_safetensors_format(file: bytes) -> None:
    header, data = parts(file)
    metadata = header.pop("__metadata__")
    assert isinstance(metadata, dict)
    assert all(isinstance(v, str) for v in metadata.values())
    assert json.loads(metadata["webrt"])["version"] == P.VERSION
    sizes = {"F32": 4, "U8": 1, "U32": 4}
    end = 0
    for tensor in header.values():
        assert isinstance(tensor, dict)
        start, stop = tensor["data_offsets"]
        count = 1
        for d in tensor["shape"]:
            count *= d
        assert (start, stop - start) == (end, count * sizes[tensor["dtype"]])
        end = stop
    assert end == len(data)
    assert (len(file) - len(data)) % P.ALIGN == 0


def test_a_file_cut_anywhere_is_refused(file: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.webrt"
    for cut in range(len(file)):
        with pytest.raises(PlanError):
            planfile.load(file[:cut])
        if cut % 97 == 0 or len(file) - cut < 20:
            path.write_bytes(file[:cut])
            with pytest.raises(PlanError):
                planfile.load(path)


def read_all(source: bytes | Path) -> None:
    """What a session reads of a file."""
    loaded = planfile.load(source)
    for i in range(len(loaded.constants)):
        loaded.constant_bytes(i)


def test_a_flipped_bit_anywhere_is_a_plan_error(file: bytes, tmp_path: Path) -> None:
    read_all(file)
    path = tmp_path / "flipped.webrt"
    for at in range(len(file)):
        flipped = bytearray(file)
        flipped[at] ^= 1 << at % 8
        with pytest.raises(PlanError):
            read_all(bytes(flipped))
        if at % 97 == 0 or len(file) - at < 40:
            path.write_bytes(flipped)
            with pytest.raises(PlanError):
                read_all(path)


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_is_a_plan_error(at: int, change: int) -> None:
    file = bytearray(planfile.dump(replace(planjson.plan_from_json(edited([])), data=lambda i: DATA[i])))
    file[at % len(file)] ^= change
    with pytest.raises(PlanError):
        read_all(bytes(file))


def test_more_bytes_than_the_file_has_are_refused(file: bytes) -> None:
    with pytest.raises(PlanError, match=f"damaged: it ends at {len(file) + 1}, not {len(file)}"):
        planfile.load(file + b"\0")


def test_a_file_of_version_1_has_no_checksums_and_is_read() -> None:
    path = Path(__file__).with_name("plan_v1.webrt")
    old = planfile.load(path)
    validate(old)
    again = planfile.load(planfile.dump(old))
    assert again == old and [bytes(again.constant_bytes(i)) for i in range(2)] == [
        bytes(old.constant_bytes(i)) for i in range(2)
    ]
    text = json.dumps({**old.to_json(), "version": 1})
    assert planjson.plan_from_json(text) == old


def test_a_newer_version_is_refused_by_name(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(P, "VERSION", 9)
    newer = planfile.dump(plan)
    monkeypatch.undo()
    with pytest.raises(PlanError, match="version 9, made by a newer webrt; this one reads versions 1 to 2: update"):
        planfile.load(newer)


def test_a_header_of_version_2_without_its_checksum_is_refused(file: bytes) -> None:
    header, data = parts(file)
    metadata = header["__metadata__"]
    assert isinstance(metadata, dict) and len(metadata.pop("crc32")) == 8
    text = json.dumps(header).encode()
    with pytest.raises(PlanError, match="its header has no checksum"):
        planfile.load(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no header"),
        (b"\x08\x07\x12\x04onnx" * 100, "header is longer"),
        (struct.pack("<Q", 2) + b"{}", "no webrt plan"),
        (struct.pack("<Q", 2) + b"[]", "no webrt plan"),
        (struct.pack("<Q", 4) + b"\xff\xfe\x00\x01", "no webrt plan"),
        (struct.pack("<Q", 100_000) + b"[" * 100_000, "no webrt plan"),
        (struct.pack("<Q", 50) + b"{}", "its header ends early"),
    ],
)
def test_what_is_no_plan_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        planfile.load(data)


def test_a_missing_file_is_a_plan_error(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"missing\.webrt: No such file"):
        planfile.load(tmp_path / "missing.webrt")
    with pytest.raises(PlanError, match="directory"):
        planfile.load(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.webrt")
    with pytest.raises(PlanError, match=r"a\.webrt is no plain file"):
        planfile.load(tmp_path / "a.webrt")


def test_a_file_that_shrinks_after_it_was_opened_is_refused(file: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.webrt"
    path.write_bytes(file)
    loaded = planfile.load(path)
    path.write_bytes(file[:-16])
    with pytest.raises(PlanError, match="cut short"):
        loaded.constant_bytes(1)


def test_a_file_that_goes_or_changes_after_it_was_opened_says_so(file: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.webrt"
    path.write_bytes(file)
    loaded = planfile.load(path)
    changed = bytearray(file)
    changed[len(file) - 40] ^= 1
    path.write_bytes(changed)
    with pytest.raises(PlanError, match=r"damaged, or was changed since it was opened: constant 'w'"):
        loaded.constant_bytes(0)
    path.unlink()
    with pytest.raises(PlanError, match=r"a\.webrt is gone since it was opened, and is needed again"):
        loaded.constant_bytes(0)


def test_a_plan_without_its_file_has_no_constants() -> None:
    with pytest.raises(PlanError, match="carries no constants"):
        planjson.plan_from_json(edited([])).constant_bytes(0)


def test_nothing_half_written_stays(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "a.webrt"
    planfile.save(plan, path)
    before = path.read_bytes()

    def broken(index: int) -> bytes:
        raise WebrtError("the disk is full")

    with pytest.raises(WebrtError, match="disk is full"):
        planfile.save(replace(plan, data=broken), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.webrt"]
    with pytest.raises(PlanError, match="cannot write"):
        planfile.save(plan, tmp_path / "nowhere" / "a.webrt")


def test_constants_are_written_in_order_at_multiples_of_16(plan: Plan) -> None:
    sizes = [1, 0, 16, 17, 3]
    offsets = P.layout_constants(sizes)
    assert offsets == [0, 16, 16, 32, 64]
    blobs = [bytes([i]) * n for i, n in enumerate(sizes, 1)]
    constants = tuple(Constant(f"c{i}", "uint8", (n,), n, o) for i, (n, o) in enumerate(zip(sizes, offsets)))
    written = planfile.dump(replace(plan, constants=constants, data=lambda i: blobs[i]))
    _, data = parts(written)
    assert len(data) == 80 + 5 * 4
    loaded = planfile.load(written)
    assert [bytes(loaded.constant_bytes(i)) for i in range(5)] == blobs


def test_the_file_is_written_piece_by_piece(plan: Plan) -> None:
    asked: list[int] = []

    def data(index: int) -> bytes:
        asked.append(index)
        return DATA[index]

    pieces: Iterator[P.Bytes] = planfile.dump_chunks(replace(plan, data=data))
    next(pieces)
    assert asked == []
    list(pieces)
    assert asked == [0, 1]


def test_odd_names_survive(plan: Plan) -> None:
    name = 'a "quoted"\\ \u2028 ü \U0001f600 __metadata__'
    constants = (replace(plan.constants[0], name=name), plan.constants[1])
    assert planfile.load(planfile.dump(replace(plan, constants=constants))).constants[0].name == name
    assert TABLE["base"]["version"] == P.VERSION

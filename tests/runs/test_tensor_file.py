"""Tensor files: round trips are bitwise, and every flipped bit is detected."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import Tensor

from seq2seq.runs import tensor_file
from seq2seq.runs.tensor_file import (
    check_shapes,
    copy_into,
    read_dataclass,
    read_header,
    read_tensors,
    save_tensors,
)
from seq2seq.runtime.errors import DamagedFile, UserError

TENSORS = {
    "matrix": torch.arange(6.0).reshape(2, 3) / 7,
    "double": torch.tensor([1 / 3, -0.0, float("nan")], dtype=torch.float64),
    "half": torch.tensor([0.5, 2.0], dtype=torch.bfloat16),
    "number": torch.tensor(5, dtype=torch.int64),
    "nothing": torch.zeros(0, 4),
}
HEADER = {"step": 3, "ratio": 1 / 3, "words": ["ü", None]}


def bits(tensors: dict[str, Tensor]) -> dict[str, tuple[object, ...]]:
    return {
        name: (t.dtype, t.shape, t.reshape(-1).view(torch.uint8).tolist())
        for name, t in tensors.items()
    }


def without_checksums(header: dict[str, object]) -> dict[str, object]:
    return {key: header[key] for key in HEADER}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_tensors(tmp_path / "file", TENSORS, HEADER)
    return tmp_path / "file"


def test_tensors_are_restored_bitwise(path: Path) -> None:
    header, shapes = read_header(path)
    assert without_checksums(header) == HEADER
    assert shapes == {name: tuple(tensor.shape) for name, tensor in TENSORS.items()}
    tensors = read_tensors(path)
    assert bits({name: tensors[name] for name in TENSORS}) == bits(TENSORS)


def test_weights_of_another_model_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_file, "FORMAT", tensor_file.FORMAT + 1)
    with pytest.raises(
        UserError, match=r"file: written by seq2seq .*, which has another format; .*train again"
    ) as refusal:
        read_tensors(path)
    assert not isinstance(refusal.value, DamagedFile)  # no other file of the run can replace it


def test_the_same_content_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    for _ in range(5):
        save_tensors(tmp_path / "again", TENSORS, HEADER)
        assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_views_and_strides_do_not_change_the_file(path: Path, tmp_path: Path) -> None:
    matrix = TENSORS["matrix"].t().contiguous().t()
    save_tensors(tmp_path / "other", {**TENSORS, "matrix": matrix}, HEADER)
    assert (tmp_path / "other").read_bytes() == path.read_bytes()


def test_every_flipped_bit_is_detected(path: Path) -> None:
    content = path.read_bytes()
    expected = bits(read_tensors(path))
    refused = 0
    positions = range(0, len(content), 3)
    for position in positions:
        bit = 1 << position * 5 % 8
        changed = bytes([content[position] ^ bit])
        path.write_bytes(content[:position] + changed + content[position + 1 :])
        try:
            bits_read = bits(read_tensors(path))
        except DamagedFile as error:
            refused += str(error).startswith(f"{path}: ") and "\n" not in str(error)
        else:  # for example a line feed in place of a space in the header
            assert bits_read == expected
            assert without_checksums(read_header(path)[0]) == HEADER
    assert refused > 0.97 * len(positions)


def test_another_type_of_the_same_size_is_detected(path: Path) -> None:
    content = path.read_bytes()
    assert b'"F32"' in content
    path.write_bytes(content.replace(b'"F32"', b'"I32"'))
    with pytest.raises(DamagedFile, match="do not match their checksum"):
        read_tensors(path)


def test_every_truncation_is_detected(path: Path) -> None:
    content = path.read_bytes()
    for length in range(0, len(content), 11):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedFile, match=str(path)):
            read_tensors(path)


def test_swapped_tensors_are_detected(path: Path, tmp_path: Path) -> None:
    pair = {"a": torch.ones(3), "b": torch.zeros(3)}
    save_tensors(path, pair, HEADER)
    save_tensors(tmp_path / "other", {"a": pair["b"], "b": pair["a"]}, HEADER)
    header = len(path.read_bytes()) - 24
    path.write_bytes(path.read_bytes()[:header] + (tmp_path / "other").read_bytes()[header:])
    with pytest.raises(DamagedFile, match="the tensors do not match their checksum"):
        read_tensors(path)


@pytest.mark.parametrize(
    "header", ["null", "5", "[]", '"text"', "{}", "{", "[" * 100_000, '{"a":' * 9_999, "1" * 9_999]
)
def test_headers_of_other_programs_are_refused(path: Path, header: str) -> None:
    path.write_bytes(save({"a": torch.ones(2)}, {"seq2seq": header}))
    with pytest.raises(DamagedFile, match=str(path)):
        read_tensors(path)


def test_a_header_without_its_checksum_is_refused(path: Path) -> None:
    header, _ = read_header(path)
    path.write_bytes(save(TENSORS, {"seq2seq": json.dumps(header)}))
    with pytest.raises(DamagedFile, match="the header does not match its checksum"):
        read_header(path)


def test_a_path_that_is_not_a_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DamagedFile, match=str(path)):
            read_header(path)


def test_tensors_must_match_in_shape_and_type(tmp_path: Path) -> None:
    tensors = {"a": torch.zeros(2, 3), "b": torch.zeros(4)}
    a = torch.ones(2, 3)
    scalar = torch.zeros(())
    longer_tensor = torch.zeros(5)
    check_shapes(tmp_path, {**tensors, "a": a}, tensors)
    for other_tensors in ({"a": a}, {**tensors, "c": scalar}, {**tensors, "b": longer_tensor}):
        with pytest.raises(UserError, match=r"[bc] does not fit"):
            check_shapes(tmp_path, other_tensors, tensors)
    into = {"a": torch.zeros(2)}
    copy_into({"a": torch.ones(2)}, into, tmp_path)
    assert into["a"].tolist() == [1, 1]
    with pytest.raises(UserError, match="a does not fit"):
        copy_into({"a": torch.ones(2, dtype=torch.float64)}, into, tmp_path)


@dataclass
class Pair:
    """Values that a header may contain."""

    number: int
    share: float

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("less than nothing")


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        {},
        {"number": 1},
        {"number": "1", "share": 0.5},
        {"number": True, "share": 0.5},
        {"number": 1, "share": 1},
        {"number": -1, "share": 0.5},
        {"number": 1, "share": 0.5, "more": 1},
    ],
)
def test_header_fields_must_have_their_types(tmp_path: Path, value: object) -> None:
    assert read_dataclass(Pair, {"p": {"number": 1, "share": 0.5}}, "p", tmp_path) == Pair(1, 0.5)
    with pytest.raises(DamagedFile, match="the header is damaged"):
        read_dataclass(Pair, {"p": value}, "p", tmp_path)

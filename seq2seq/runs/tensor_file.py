"""Tensors and a JSON header in one file, with checksums: whole, or known to be damaged.

The file is a plain safetensors file; reading it runs nothing that is in it. Its metadata `seq2seq`
is the header as JSON: there `tensors` is the SHA-256 over the name, type, shape and bytes of each
tensor, and `checksum` that of the header without it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from seq2seq import __version__
from seq2seq.runtime.device import total_memory
from seq2seq.runtime.errors import DamagedFile, UserError
from seq2seq.runtime.files import atomic_write

FORMAT = 2  # raised where the same numbers come to mean another model
_METADATA, _CHECKSUM, _TENSORS, _FORMAT = "seq2seq", "checksum", "tensors", "format"
_UNREADABLE = (SafetensorError, OSError, ValueError, RuntimeError, MemoryError)  # torch's: mmap
_UNKNOWN_MEMORY = 64 << 30  # bytes assumed where the system hides its memory
Shapes = dict[str, tuple[int, ...]]
T = TypeVar("T")


def save_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    header: Mapping[str, Any],
    kept: Path | None = None,
) -> None:
    """Write tensors and header in the place of `path`; the old file goes to `kept` if given.

    Raises OSError.
    """
    own = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    whole = {"version": __version__, _FORMAT: FORMAT, **header, _TENSORS: _digest(own)}
    text = json.dumps({**whole, _CHECKSUM: _checksum(whole)})
    atomic_write(path, save(own, {_METADATA: text}), kept)


def read_header(path: Path) -> tuple[dict[str, Any], Shapes]:
    """The header and the shapes of the tensors, of which none is read.

    Raises DamagedFile, and UserError where another version's numbers would be misread.
    """
    with _reading(path), safe_open(path, framework="pt") as file:
        header = json.loads((file.metadata() or {}).get(_METADATA, "null"))
        if not isinstance(header, dict):
            raise DamagedFile(f"{path}: not a checkpoint of seq2seq")
        if header.pop(_CHECKSUM, None) != _checksum(header):
            raise DamagedFile(f"{path}: damaged, its header is not that of its checksum")
        if header.get(_FORMAT) != FORMAT:
            raise UserError(
                f"{path}: written by another version of seq2seq, whose models compute otherwise; "
                "use that version, or train anew"
            )
        names = file.keys()
        return header, {name: tuple(file.get_slice(name).get_shape()) for name in names}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors, on the CPU; raises DamagedFile, as where a single bit is not what it was."""
    header, shapes = read_header(path)
    with _reading(path), safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in shapes}
        found = _digest(tensors)
    with header_errors(path):
        if header[_TENSORS] != found:
            raise DamagedFile(f"{path}: damaged, its tensors are not those of its checksum")
    return tensors


def _check_size(path: Path) -> None:
    """Refuse at once what this machine could never load, instead of adding it up for hours."""
    size, most = path.stat().st_size, total_memory(torch.device("cpu")) or _UNKNOWN_MEMORY
    if size > most:
        raise DamagedFile(
            f"{path}: cannot be a checkpoint of seq2seq trained here: it has {size >> 30:,} GiB, "
            f"this machine {most >> 30:,} GiB of memory"
        )


def shapes_of(tensors: Mapping[str, Tensor]) -> Shapes:
    """The shape of each tensor."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def check_shapes(path: Path, found: Shapes, expected: Shapes) -> None:
    """Raise UserError where names or shapes are not those expected."""
    for name in {**expected, **found}:
        if found.get(name) != expected.get(name):
            raise shape_mismatch(path, name)


def shape_mismatch(path: Path, name: str) -> UserError:
    """A tensor that is not one of the model's."""
    return UserError(f"{path}: {name} does not fit the config beside it; was either changed?")


def copy_into(tensors: Mapping[str, Tensor], into: Mapping[str, Tensor], path: Path) -> None:
    """Copy tensors by name; raises UserError where a type is not the one expected."""
    for name, tensor in tensors.items():
        if tensor.dtype != into[name].dtype:
            raise shape_mismatch(path, name)
        into[name].copy_(tensor)


def read_dataclass(kind: type[T], header: Mapping[str, Any], key: str, path: Path) -> T:
    """A dataclass from the header; raises DamagedFile where its fields are of other types.

    A field that an earlier version did not have yet has its default.
    """
    with header_errors(path):
        values = dict(header[key])
        for field in fields(kind):  # type: ignore[arg-type]
            if field.name not in values and field.default is not MISSING:
                continue
            if not _is_a(field.type, values[field.name]):
                raise TypeError(field.name)
        return kind(**values)


def _is_a(kind: object, value: object) -> bool:
    """Whether a value from JSON is an int, a float, a list of ints..., none for another."""
    if get_origin(kind) is list and isinstance(value, list):
        return all(_is_a(get_args(kind)[0], each) for each in value)
    return type(value) is kind


def _checksum(header: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header).encode()).hexdigest()


def _digest(tensors: Mapping[str, Tensor]) -> str:
    whole = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        whole.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        whole.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return whole.hexdigest()


@contextmanager
def header_errors(path: Path) -> Iterator[None]:
    """What does not stand in the header as it must is a DamagedFile."""
    try:
        yield
    except DamagedFile:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DamagedFile(
            f"{path}: its header is damaged or of another version of seq2seq ({error!r})"
        ) from None


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        if not path.is_file():  # a pipe would be waited for
            raise OSError("not a file")
        _check_size(path)
        yield
    except UserError:
        raise
    except _UNREADABLE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DamagedFile(f"{path}: damaged, or no checkpoint at all ({reason})") from None

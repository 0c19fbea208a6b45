"""Checksummed files of tensors and a JSON header, in safetensors format (no pickle).

The metadata entry `seq2seq` is the header as JSON. Its field `tensors` is the SHA-256 of the name,
type, shape and bytes of all tensors, and `checksum` the SHA-256 of the header without that field.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_origin

from seq2seq import __version__
from seq2seq.runtime.errors import DamagedFile, UnreadableFile, UserError
from seq2seq.runtime.files import LONE_SURROGATE, atomic_write, check_readable

if TYPE_CHECKING:
    from torch import Tensor

    Tensors = Mapping[str, Tensor]

FORMAT = 3  # incremented when tensor names change or weights would give another model
_METADATA = "seq2seq"
_CHECKSUM = "checksum"
_TENSORS = "tensors"
_FORMAT = "format"
_VERSION = "version"
Shapes = dict[str, tuple[int, ...]]
T = TypeVar("T")


def save_tensors(
    path: Path, tensors: "Tensors", header: Mapping[str, Any], backup: Path | None = None
) -> None:
    """Write tensors and header atomically, the previous file as `backup`; raises OSError."""
    from safetensors.torch import save

    on_cpu = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {_VERSION: __version__, _FORMAT: FORMAT, **header, _TENSORS: _digest(on_cpu)}
    text = json.dumps({**metadata, _CHECKSUM: _checksum(metadata)})
    atomic_write(path, save(on_cpu, {_METADATA: text}), backup)


def read_header(path: Path) -> tuple[dict[str, Any], Shapes]:
    """Read header and shapes, but no tensor; raises DamagedFile, UserError for other versions."""
    with _opened(path) as file:
        header = _header_of(file, path)
        names = file.keys()
        return header, {name: tuple(file.get_slice(name).get_shape()) for name in names}


def read_file(path: Path) -> "tuple[dict[str, Any], dict[str, Tensor]]":
    """Read and verify header and tensors at once, on the CPU; raises as `read_header` does."""
    with _opened(path, "pt") as file:
        header = _header_of(file, path)
        tensors = {name: file.get_tensor(name) for name in list(file.keys())}
        digest = _digest(tensors)
    with header_errors(path):
        if header[_TENSORS] != digest:
            raise DamagedFile(f"{path}: damaged (the tensors do not match their checksum)")
    return header, tensors


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """Load the tensors to the CPU and verify their checksum; raises DamagedFile."""
    return read_file(path)[1]


def _header_of(file: Any, path: Path) -> dict[str, Any]:
    header = json.loads((file.metadata() or {}).get(_METADATA, "null"))
    if not isinstance(header, dict):
        raise DamagedFile(f"{path}: not a seq2seq checkpoint")
    if header.pop(_CHECKSUM, None) != _checksum(header):
        raise DamagedFile(f"{path}: damaged (the header does not match its checksum)")
    if header.get(_FORMAT) != FORMAT:
        version = f"{header.get(_VERSION)}"[:20]
        text = f"written by seq2seq {version}, which has another format"
        raise UserError(f"{path}: {text}; use that version, or train again")
    return header


def check_shapes(path: Path, tensors: "Tensors", expected: "Tensors") -> None:
    """Raise UserError if names or shapes are not those of the expected tensors."""
    for name in {**expected, **tensors}:
        shapes = [
            weights[name].shape if name in weights else None for weights in (tensors, expected)
        ]
        if shapes[0] != shapes[1]:
            raise shape_mismatch(path, name)


def shape_mismatch(path: Path | str, name: str) -> UserError:
    """Return the error for a tensor that is not one of the model's."""
    text = f"tensor {name} does not fit the config in this folder"
    return UserError(f"{path}: {text}; take both files from the same run")


def non_finite(tensors: "Tensors") -> str | None:
    """Describe the first tensor with a value that is nan or infinite; None if all are finite."""
    for name, tensor in tensors.items():
        # The extremes are a tenth of the work of a test of each value.
        extremes = tensor.aminmax() if tensor.is_floating_point() and tensor.numel() else ()
        if not all(extreme.isfinite() for extreme in extremes):
            values = tensor[~tensor.isfinite()]
            text = f"({len(values):,} values, such as {values[0].item()})"
            return f"tensor {name} is not finite {text}"
    return None


def check_finite(path: Path, tensors: "Tensors") -> None:
    """Raise DamagedFile if a tensor that was read is not finite: such weights are never written."""
    if (fault := non_finite(tensors)) is not None:
        raise DamagedFile(f"{path}: {fault}")


def copy_into(tensors: "Tensors", into: "Tensors", path: Path | str) -> None:
    """Copy tensors by name; raises UserError if a data type differs."""
    for name, tensor in tensors.items():
        if tensor.dtype != into[name].dtype:
            raise shape_mismatch(path, name)
        into[name].copy_(tensor)


def read_dataclass(kind: type[T], header: Mapping[str, Any], key: str, path: Path) -> T:
    """Build a dataclass from a header field; raises DamagedFile for a value of another type."""
    with header_errors(path):
        result = kind(**header[key])
        for item in fields(result):  # type: ignore[arg-type]
            if type(getattr(result, item.name)) is not (get_origin(item.type) or item.type):
                raise TypeError(item.name)
        return result


def read_record(kind: type[T], header: Mapping[str, Any], key: str, path: Path) -> T:
    """Build a record of a text, whose fields versions add and remove, as `known_fields` says.

    Raises DamagedFile for a value of another type.
    """
    with header_errors(path):
        return read_dataclass(kind, {key: known_fields(kind, header[key])}, key, path)


def known_fields(kind: type, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored fields that a record has; those that it lacks have their defaults.

    So a field that an older version did not write is none of the text, and one that was removed is
    ignored. Raises AttributeError for anything but a map.
    """
    names = {item.name for item in fields(kind)}
    return {name: value for name, value in entries.items() if name in names}


def _checksum(header: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header).encode()).hexdigest()


def _digest(tensors: "Tensors") -> str:
    import torch

    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextmanager
def header_errors(path: Path) -> Iterator[None]:
    """Turn errors of missing or malformed header fields into DamagedFile."""
    try:
        yield
    except DamagedFile:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        text = f"the header is damaged or from another version of seq2seq ({error!r})"
        raise DamagedFile(f"{path}: {text}") from None


@contextmanager
def _opened(path: Path, framework: str = "np") -> Iterator[Any]:
    """Open a file of tensors; raises UnreadableFile or DamagedFile, also if reading fails."""
    from safetensors import SafetensorError, safe_open

    check_readable(path)
    try:
        if not path.is_file():  # reading a pipe would block
            raise OSError("not a file")
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if (size := path.stat().st_size) > memory:  # its checksum could take hours
            text = f"{size >> 30:,} GiB, more than the {memory >> 30:,} GiB of memory here"
            raise DamagedFile(f"{path}: too large for a seq2seq checkpoint: {text}")
        with path.open("rb") as handle:
            encodable = LONE_SURROGATE.search(str(path)) is None  # as safe_open needs it
            name = str(path) if encodable else f"/dev/fd/{handle.fileno()}"
            with safe_open(name, framework=framework) as file:
                yield file
    except UserError:
        raise
    except (SafetensorError, ValueError, RecursionError) as error:
        raise DamagedFile(f"{path}: damaged, or not a checkpoint ({_reason(error)})") from None
    except (OSError, MemoryError, RuntimeError) as error:  # torch reports failures to map so
        if not path.is_file():
            raise DamagedFile(f"{path}: not a checkpoint ({_reason(error)})") from None
        raise UnreadableFile(f"{path}: cannot be read ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__

"""Checksummed files of tensors and a JSON header, in safetensors format (no pickle).

The metadata entry `seq2seq` is the header as JSON. Its field `tensors` is the SHA-256 of the name,
type, shape and bytes of all tensors, and `checksum` the SHA-256 of the header without that field.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from safetensors import SafetensorError, safe_open

from seq2seq import __version__
from seq2seq.runtime.errors import DamagedFile, UnreadableFile, UserError
from seq2seq.runtime.files import LONE_SURROGATE, atomic_write, check_readable

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 3  # incremented when tensor names change or weights would give another model
_METADATA, _CHECKSUM, _TENSORS, _FORMAT = "seq2seq", "checksum", "tensors", "format"
_VERSION, _RELEASE = "version", re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){1,2}")
_DEFAULT_MEMORY = 64 << 30  # bytes assumed if the memory of the machine is unknown
Shapes = dict[str, tuple[int, ...]]
T = TypeVar("T")


def save_tensors(
    path: Path,
    tensors: "Mapping[str, Tensor]",
    header: Mapping[str, Any],
    backup: Path | None = None,
) -> None:
    """Write tensors and header atomically; the previous file is renamed to `backup`, if given.

    Raises OSError.
    """
    from safetensors.torch import save

    own = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    full = {_VERSION: __version__, _FORMAT: FORMAT, **header, _TENSORS: _digest(own)}
    text = json.dumps({**full, _CHECKSUM: _checksum(full)})
    atomic_write(path, save(own, {_METADATA: text}), backup)


def read_header(path: Path) -> tuple[dict[str, Any], Shapes]:
    """Read the header and the shapes of the tensors, but no tensor.

    Raises DamagedFile, or UserError if the file has another format version.
    """
    with _opened(path) as file:
        header = _header_of(file, path)
        names = file.keys()
        return header, {name: tuple(file.get_slice(name).get_shape()) for name in names}


def read_file(path: Path) -> "tuple[dict[str, Any], dict[str, Tensor]]":
    """Read and verify header and tensors at once, on the CPU; raises as `read_header` does."""
    with _opened(path, "pt") as file:
        header = _header_of(file, path)
        tensors = {name: file.get_tensor(name) for name in list(file.keys())}
        found = _digest(tensors)
    with header_errors(path):
        if header[_TENSORS] != found:
            raise DamagedFile(f"{path}: damaged (the tensors do not match their checksum)")
    return header, tensors


def newer_version(path: Path) -> str | None:
    """Say that a newer version wrote a file, and what to do; None for other or damaged files."""
    try:
        with _opened(path) as file:
            return _newer_version(_verified_header(file, path))
    except UserError:
        return None


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """Load the tensors to the CPU and verify their checksum; raises DamagedFile."""
    return read_file(path)[1]


def _header_of(file: Any, path: Path) -> dict[str, Any]:
    header = _verified_header(file, path)
    if header.get(_FORMAT) != FORMAT:
        other = "written by an incompatible version of seq2seq; use that version, or train again"
        raise UserError(f"{path}: {_newer_version(header) or other}")
    return header


def _verified_header(file: Any, path: Path) -> dict[str, Any]:
    """Read the header of any version, against its checksum."""
    header = json.loads((file.metadata() or {}).get(_METADATA, "null"))
    if not isinstance(header, dict):
        raise DamagedFile(f"{path}: not a seq2seq checkpoint")
    if header.pop(_CHECKSUM, None) != _checksum(header):
        raise DamagedFile(f"{path}: damaged (the header does not match its checksum)")
    return header


def _newer_version(header: Mapping[str, Any]) -> str | None:
    found = _RELEASE.match(str(header.get(_VERSION)))
    own = _RELEASE.match(__version__)
    if found is None or own is None or _numbers(found[0]) <= _numbers(own[0]):
        return None
    return (
        f"written by seq2seq {found[0]}, and this is {__version__}: "
        "pip install -U seq2seq-attention"
    )


def _numbers(release: str) -> list[int]:
    return [int(number) for number in release.split(".")]


def check_shapes(
    path: Path, tensors: "Mapping[str, Tensor]", expected: "Mapping[str, Tensor]"
) -> None:
    """Raise UserError if names or shapes are not those of the expected tensors."""
    for name in {**expected, **tensors}:
        found, wanted = (each[name].shape if name in each else None for each in (tensors, expected))
        if found != wanted:
            raise shape_mismatch(path, name)


def shape_mismatch(path: Path, name: str) -> UserError:
    """Return the error for a tensor that is not one of the model's."""
    return UserError(
        f"{path}: tensor {name} does not fit the config in this folder; "
        "take both files from the same run"
    )


def non_finite(tensors: "Mapping[str, Tensor]") -> str | None:
    """Describe the first tensor with a value that is nan or infinite; None if all are finite."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            found = tensor[~tensor.isfinite()]
            return f"tensor {name} is not finite ({len(found):,} values, such as {found[0].item()})"
    return None


def check_finite(path: Path, tensors: "Mapping[str, Tensor]") -> None:
    """Raise DamagedFile if a tensor that was read is not finite: such weights are never written."""
    if (found := non_finite(tensors)) is not None:
        raise DamagedFile(f"{path}: {found}")


def copy_into(tensors: "Mapping[str, Tensor]", into: "Mapping[str, Tensor]", path: Path) -> None:
    """Copy tensors by name; raises UserError if a data type differs."""
    for name, tensor in tensors.items():
        if tensor.dtype != into[name].dtype:
            raise shape_mismatch(path, name)
        into[name].copy_(tensor)


def read_dataclass(kind: type[T], header: Mapping[str, Any], key: str, path: Path) -> T:
    """Build a dataclass from a header field; raises DamagedFile if a value has another type.

    Missing values get their default, as in files written by earlier versions.
    """
    with header_errors(path):
        values = dict(header[key])
        for field in fields(kind):  # type: ignore[arg-type]
            if field.name not in values and (
                field.default is not MISSING or field.default_factory is not MISSING
            ):
                continue
            if not _is_a(field.type, values[field.name]):
                raise TypeError(field.name)
        return kind(**values)


def _is_a(kind: object, value: object) -> bool:
    """Return whether a JSON value has exactly this type; list[...] checks each element."""
    if get_origin(kind) is list and isinstance(value, list):
        return all(_is_a(get_args(kind)[0], each) for each in value)
    return type(value) is kind


def _checksum(header: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header).encode()).hexdigest()


def _digest(tensors: "Mapping[str, Tensor]") -> str:
    import torch

    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextmanager
def header_errors(path: Path) -> Iterator[None]:
    """Turn errors of missing or malformed header fields into DamagedFile.

    Raises UserError instead if a newer version wrote the file.
    """
    try:
        yield
    except DamagedFile:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if newer := newer_version(path):
            raise UserError(f"{path}: {newer}") from None
        raise DamagedFile(
            f"{path}: the header is damaged or from another version of seq2seq ({error!r})"
        ) from None


@contextmanager
def _opened(path: Path, framework: str = "np") -> Iterator[Any]:
    """Open a file of tensors; raises UnreadableFile or DamagedFile, also if reading fails."""
    check_readable(path)
    try:
        if not path.is_file():  # reading a pipe would block
            raise OSError("not a file")
        size, memory = path.stat().st_size, _machine_memory()
        if size > memory:  # its checksum could take hours
            raise DamagedFile(
                f"{path}: too large for a seq2seq checkpoint: {size >> 30:,} GiB, more than the "
                f"{memory >> 30:,} GiB of memory of this machine"
            )
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


def _machine_memory() -> int:
    """Return the memory of the machine in bytes, or an assumption if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _DEFAULT_MEMORY


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__

"""Vocabulary files of a folder: SentencePiece models, and the names."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from seq2seq.data.vocabulary.vocabulary import Vocabularies, Vocabulary
from seq2seq.names.names import Names
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import atomic_write, check_readable, read_bounded, refused_link

_JOINT, _SIDES, NAMES = "joint", ("src", "tgt"), "names"  # stems of files
_MAX_MODEL_BYTES = 1 << 26


def save_vocabularies(vocabularies: Vocabularies, folder: Path) -> None:
    """Write `joint.model`, or `src.model` and `tgt.model`, and `names.json` if there are names.

    Raises OSError, and UserError if the folder is a symbolic link.
    """
    if folder.is_symlink():
        raise refused_link(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for stem, vocabulary in _named(vocabularies).items():
        atomic_write(folder / file_of(stem), vocabulary.model)
    if vocabularies.names is not None:
        atomic_write(folder / file_of(NAMES), vocabularies.names.stored)


def file_of(stem: str) -> str:
    """Return the name of a vocabulary's file."""
    return f"{stem}.json" if stem == NAMES else f"{stem}.model"


def load_vocabularies(
    folder: Path, sampling: float = 0.0, checksums: Mapping[str, str] | None = None
) -> Vocabularies:
    """Load what `save_vocabularies` wrote, and verify it if checksums are given.

    Raises UserError if a file is missing, is not a model or has another checksum.
    """
    expected = checksums or {}
    stems = expected or ((_JOINT,) if (folder / f"{_JOINT}.model").exists() else _SIDES)
    loaded = [
        _load(folder / file_of(stem), sampling, expected.get(stem))
        for stem in sorted(stems)
        if stem != NAMES
    ]
    path = folder / file_of(NAMES)
    has_names = NAMES in expected if expected else path.exists()
    names = _load_names(path, expected.get(NAMES)) if has_names else None
    return Vocabularies(loaded[0], loaded[-1], names)


def checksums_of(vocabularies: Vocabularies) -> dict[str, str]:
    """Return the SHA-256 of each model by the stem of its file name."""
    checksums = {
        name: _checksum(vocabulary.model) for name, vocabulary in _named(vocabularies).items()
    }
    if vocabularies.names is not None:
        checksums[NAMES] = _checksum(vocabularies.names.stored)
    return checksums


def are_checksums(value: object) -> bool:
    """Return whether the value has the form of what `checksums_of` returns."""
    if not isinstance(value, dict):
        return False
    if sorted(value.keys() - {NAMES}) not in ([_JOINT], list(_SIDES)):
        return False
    return all(isinstance(checksum, str) for checksum in value.values())


def _named(vocabularies: Vocabularies) -> dict[str, Vocabulary]:
    if vocabularies.joint:
        return {_JOINT: vocabularies.src}
    return dict(zip(_SIDES, vocabularies[:2], strict=True))


def _load(path: Path, sampling: float, checksum: str | None) -> Vocabulary:
    with _reading(path, "a SentencePiece model"):
        return Vocabulary(_read(path, checksum), sampling)


def _load_names(path: Path, checksum: str | None) -> Names:
    with _reading(path, "a file of names"):
        return Names.from_bytes(_read(path, checksum))


def _read(path: Path, checksum: str | None) -> bytes:
    """Read a file of a vocabulary, and verify it if a checksum is given."""
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise OSError("not a file")
    content = read_bounded(path, _MAX_MODEL_BYTES)
    if checksum is not None and _checksum(content) != checksum:
        raise UserError(
            f"{path}: its checksum differs from the one recorded with the weights; "
            "it is damaged, or one of them is from another run"
        )
    return content


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Convert a failure to read a file of this kind into a UserError."""
    check_readable(path)
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a run folder has its vocabulary there") from None
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not {kind} ({reason})") from None


def _checksum(model: bytes) -> str:
    return hashlib.sha256(model).hexdigest()

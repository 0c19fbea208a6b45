"""The demo corpora that come with the package: unpacked into a folder of plain text files."""

import io
import tarfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path, PurePosixPath

from seq2seq.runtime.files import atomic_write, write_errors


def unpack_demo_corpora(folder: Path) -> list[str]:
    """Write each corpus to `folder/NAME/{train,valid,test}.LANG`; return a summary of each.

    Raises RunError if a file cannot be written.
    """
    pairs: dict[str, dict[str, int]] = {}
    for name, content in _members():
        path = folder / name
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, content)
        pairs.setdefault(name.parts[0], {})[name.stem] = content.count(b"\n")
    return [
        f"{folder / corpus}: "
        + ", ".join(f"{splits[split]:,} {split}" for split in ("train", "valid", "test"))
        + " pairs"
        for corpus, splits in pairs.items()
    ]


def _members() -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield the name and the content of each packed file."""
    packed = files("seq2seq").joinpath("demo_data", "corpora.tar.xz").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:xz") as archive:
        for member in archive:
            if file := archive.extractfile(member):
                yield PurePosixPath(member.name), file.read()

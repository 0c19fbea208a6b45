"""Ready corpora: the demo's, which are unpacked, Multi30k, and the Tatoeba pairs of manythings.org.

Multi30k is a fixed release, verified by SHA-256. The Tatoeba pairs (anki-eng-*) change over time
and are split into train, dev and test by a fixed rule of this module: scores are comparable only if
the SHA-256 of the download is the same. The corpora keep their own licences, printed at the end.
Files that exist with the right content are kept.
"""

import gzip
import hashlib
import io
import tarfile
import unicodedata
import urllib.request
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator
from http.client import HTTPException
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import IO

from seq2seq.data.corpus import has_text
from seq2seq.data.tables import new_file
from seq2seq.runtime.console import say
from seq2seq.runtime.errors import RunError, argument
from seq2seq.runtime.files import appearing_together, atomic_write, made_folders, write_errors

MULTI30K_URL = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw"
)
MULTI30K_LICENCE = (
    "Multi30k (Elliott et al. 2016, 2017; Barrault et al. 2018): "
    "for non-commercial research and education only."
)
_CHECKSUMS = files("seq2seq").joinpath("data", "multi30k.sha256").read_text("utf-8")
MULTI30K = {  # SHA-256 of the unpacked content, by name
    name: checksum for checksum, name in map(str.split, _CHECKSUMS.splitlines())
}

ANKI_URL = "https://www.manythings.org/anki"
ANKI_LICENCE = "Tatoeba sentences by way of manythings.org/anki: CC BY 2.0 (France), keep column 3."
MULTI30K_NAME = "multi30k"
ANKI_LANGUAGES = {"anki-eng-mar": "mar", "anki-eng-deu": "deu", "anki-eng-fra": "fra"}
CORPORA = (MULTI30K_NAME, *ANKI_LANGUAGES)

USER_AGENT = "seq2seq-attention"  # manythings.org refuses the defaults of libraries
TIMEOUT = 60  # seconds without data
MAX_UNPACKED = 512 * 2**20  # bytes
HELD_OUT = 1000  # English sentences in each of dev and test


def unpack_demo_corpora(folder: Path) -> list[str]:
    """Write `folder/NAME/{train,valid,test}.LANG`; return summaries. Raises RunError."""
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


def fetch(name: str, output: Path, base_url: str | None = None) -> None:
    """Download one of CORPORA into the folder of its name; raises RunError if that fails."""
    if name == MULTI30K_NAME:
        fetch_multi30k(base_url or MULTI30K_URL, output / name)
    else:
        fetch_anki(base_url or ANKI_URL, output / name, ANKI_LANGUAGES[name])


def fetch_multi30k(base_url: str, folder: Path) -> None:
    """Download the files that are missing or have the wrong content."""
    for name, expected in MULTI30K.items():
        path = folder / name
        if path.exists() and content_sha256(path.read_bytes()) == expected:
            say(f"{path}: up to date")
            continue
        packed = download(f"{base_url}/{name}")
        if (checksum := content_sha256(packed)) != expected:
            text = f"the content has SHA-256 {checksum} instead of {expected}. The download was"
            remedy = f"try again, or another {argument('base_url')}"
            raise RunError(f"{name}: {text} discarded; {remedy}")
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(path, packed)
        say(f"{path}: {len(packed):,} bytes, SHA-256 verified")
    say(MULTI30K_LICENCE)


def content_sha256(packed: bytes) -> str:
    """Return the SHA-256 of the content of a gzip file, or a remark if it is damaged."""
    try:
        with gzip.open(io.BytesIO(packed)) as stream:
            return hashlib.sha256(_unpacked(stream, "content")).hexdigest()
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return "(not an intact gzip file)"


def fetch_anki(base_url: str, folder: Path, language: str) -> None:
    """Download the pairs of English and one language; write train, dev and test, or nothing."""
    names = [f"{split}.tsv.gz" for split in ("train", "dev", "test")]
    existing_names = [name for name in names if (folder / name).exists()]
    if existing_names == names:
        say(f"{folder}: up to date")
        return
    if folder.exists():
        raise RunError(f"{folder}: incomplete corpus. Remove it, or choose another folder")
    archive = download(f"{base_url}/{language}-eng.zip")
    checksum = hashlib.sha256(archive).hexdigest()
    say(f"{language}-eng.zip: {len(archive):,} bytes, SHA-256 {checksum}")
    splits = split_pairs(read_pairs(archive, f"{language}.txt"))
    with made_folders([folder / names[0]]), appearing_together() as later:
        for split, lines in splits.items():
            with new_file(folder / f"{split}.tsv.gz", later) as file:
                file.writelines(f"{line}\n".encode() for line in lines)
    for split, lines in splits.items():
        say(f"{folder / split}.tsv.gz: {len(lines):,} pairs")
    say("The split is specific to this command: compare scores only if the SHA-256 is the same.")
    say(ANKI_LICENCE)


def download(url: str) -> bytes:
    """Return the content of a URL; raises RunError."""
    request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            return bytes(response.read())
    except (OSError, HTTPException) as error:
        reason = " ".join(str(error).split())
        text = "Check the network connection, its proxy and certificates, then repeat the command"
        raise RunError(f"{url}: download failed: {reason}. {text}") from error


def _unpacked(stream: IO[bytes] | gzip.GzipFile, name: str) -> bytes:
    """Read a stream to its end; raise RunError if it exceeds MAX_UNPACKED bytes."""
    content = stream.read(MAX_UNPACKED + 1)
    if len(content) > MAX_UNPACKED:
        raise RunError(f"{name}: larger than {MAX_UNPACKED:,} bytes")
    return content


def read_pairs(archive: bytes, member: str) -> list[str]:
    """Read a text file of a zip archive in memory: English, tab, translation, tab, attribution."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as members, members.open(member) as stream:
            text = _unpacked(stream, member).decode("utf-8-sig")
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError, UnicodeDecodeError) as error:
        raise RunError(f"the download is not an intact archive of {member}: {error}") from error
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    for number, line in enumerate(lines, start=1):
        columns = line.split("\t")
        if len(columns) < 2 or not has_text(*columns[:2]):
            raise RunError(f"{member}:{number}: not two sentences separated by a tab")
    return lines


def split_pairs(lines: list[str]) -> dict[str, list[str]]:
    """Split pairs into train, dev and test, which share no sentence of either language.

    Sentences that differ only in case, punctuation and spaces are the same. English sentences whose
    translations belong to no other English sentence fill test, then dev, ordered by a hash; each
    takes a tenth of all English sentences, at most HELD_OUT.
    """
    keys = [tuple(sentence_key(side) for side in line.split("\t")[:2]) for line in lines]
    sources = defaultdict(set)
    for english, translation in keys:
        sources[translation].add(english)
    shared_english = {english for english, translation in keys if len(sources[translation]) > 1}
    everything = {english for english, _ in keys}
    size = min(HELD_OUT, len(everything) // 10)
    order = sorted(
        everything - shared_english, key=lambda key: hashlib.sha256(key.encode()).digest()
    )
    split_of = dict.fromkeys(order[:size], "test") | dict.fromkeys(order[size : 2 * size], "dev")
    splits: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for line, (english, _) in zip(lines, keys, strict=True):
        splits[split_of.get(english, "train")].append(line)
    return splits


def sentence_key(sentence: str) -> str:
    """Return the letters, marks and digits of a sentence, case-folded."""
    folded = unicodedata.normalize("NFKC", sentence).casefold()
    return "".join(char for char in folded if unicodedata.category(char)[0] in "LMN") or folded

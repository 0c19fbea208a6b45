"""Ready corpora: the demo's, which are unpacked, Multi30k, and the Tatoeba pairs of manythings.org.

Multi30k is a fixed release, verified by SHA-256. The Tatoeba pairs (anki-eng-*) change over time
and are split into train, dev and test by a fixed rule of this module: scores are comparable only if
the SHA-256 of the download is the same. The corpora keep their own licences, printed at the end.
Files that exist with the right content are kept.
"""

import gzip
import hashlib
import io
import shutil
import tarfile
import unicodedata
import urllib.request
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from http.client import HTTPException
from importlib.resources import files
from pathlib import Path, PurePosixPath

from seq2seq.data.corpus import has_text
from seq2seq.runtime.console import say
from seq2seq.runtime.errors import RunError, argument
from seq2seq.runtime.files import atomic_write, write_errors

MULTI30K_URL = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw"
)
MULTI30K_LICENCE = (
    "Multi30k (Elliott et al. 2016, 2017; Barrault et al. 2018): "
    "for non-commercial research and education only."
)
# SHA-256 of the unpacked content
MULTI30K = {
    "train.en.gz": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "train.de.gz": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "train.fr.gz": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
    "train.cs.gz": "2be68b38c8d586ff4f54eb13cc6e1baaaa053695b3f070d3038303a47f2268da",
    "val.en.gz": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "val.de.gz": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "val.fr.gz": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
    "val.cs.gz": "d53827e469b0a1ca8d57e9e26b2b64c4bc4b33f5479c7b03ae87ae5c882c3e33",
    "test_2016_flickr.en.gz": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "test_2016_flickr.de.gz": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    "test_2016_flickr.fr.gz": "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
    "test_2016_flickr.cs.gz": "45adb85f688de8407fddcbe1b36dca15d12aab868149b337e2576f2d6d2ff8d8",
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


def fetch(name: str, output: Path, base_url: str | None = None) -> None:
    """Download one of CORPORA into the folder of its name in `output`.

    Raises RunError if the download fails or is damaged.
    """
    folder = output / name
    if name == MULTI30K_NAME:
        fetch_multi30k(base_url or MULTI30K_URL, folder)
    else:
        fetch_anki(base_url or ANKI_URL, folder, ANKI_LANGUAGES[name])


def fetch_multi30k(base_url: str, folder: Path) -> None:
    """Download the files that are missing or have the wrong content."""
    for name, expected in MULTI30K.items():
        path = folder / name
        if path.exists() and content_sha256(path.read_bytes()) == expected:
            say(f"{path}: up to date")
            continue
        packed = download(f"{base_url}/{name}")
        checksum = content_sha256(packed)
        if checksum != expected:
            raise RunError(
                f"{name}: the content has SHA-256 {checksum} instead of {expected}. "
                f"The download was discarded; try again, or another {argument('base_url')}"
            )
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(path, packed)
        say(f"{path}: {len(packed):,} bytes, SHA-256 verified")
    say(MULTI30K_LICENCE)


def content_sha256(packed: bytes) -> str:
    """Return the SHA-256 of the content of a gzip file, or a remark if it is damaged."""
    try:
        with gzip.open(io.BytesIO(packed)) as stream:
            return hashlib.sha256(read_at_most(stream.read, MAX_UNPACKED, "content")).hexdigest()
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return "(not an intact gzip file)"


def fetch_anki(base_url: str, folder: Path, language: str) -> None:
    """Download the pairs of English and one language; write train, dev and test, or nothing."""
    names = [f"{split}.tsv.gz" for split in ("train", "dev", "test")]
    there = [name for name in names if (folder / name).exists()]
    if there == names:
        say(f"{folder}: up to date")
        return
    if folder.exists():
        raise RunError(f"{folder}: incomplete corpus. Remove it, or choose another folder")
    archive = download(f"{base_url}/{language}-eng.zip")
    say(
        f"{language}-eng.zip: {len(archive):,} bytes, SHA-256 {hashlib.sha256(archive).hexdigest()}"
    )
    splits = split_pairs(read_pairs(archive, f"{language}.txt"))
    write_folder(folder, {f"{split}.tsv.gz": pack(lines) for split, lines in splits.items()})
    for split, lines in splits.items():
        say(f"{folder / split}.tsv.gz: {len(lines):,} pairs")
    say("The split is specific to this command: compare scores only if the SHA-256 is the same.")
    say(ANKI_LICENCE)


def download(url: str) -> bytes:
    """Return the content of a URL; raises RunError."""
    request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            content: bytes = response.read()
            return content
    except (OSError, HTTPException) as error:
        reason = " ".join(str(error).split())
        raise RunError(
            f"{url}: download failed: {reason}. Check the network connection, its proxy and "
            "certificates, then repeat the command"
        ) from error


def read_at_most(read: Callable[[int], bytes], limit: int, name: str) -> bytes:
    """Read a stream to its end; raise RunError if it exceeds `limit` bytes."""
    content = bytearray()
    while chunk := read(2**20):
        content += chunk
        if len(content) > limit:
            raise RunError(f"{name}: larger than {limit:,} bytes")
    return bytes(content)


def read_pairs(archive: bytes, member: str) -> list[str]:
    """Read a text file of a zip archive in memory: English, tab, translation, tab, attribution."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as members, members.open(member) as stream:
            text = read_at_most(stream.read, MAX_UNPACKED, member).decode("utf-8-sig")
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
    shared = {english for english, translation in keys if len(sources[translation]) > 1}
    everything = {english for english, _ in keys}
    size = min(HELD_OUT, len(everything) // 10)
    order = sorted(everything - shared, key=lambda key: hashlib.sha256(key.encode()).digest())
    split_of = dict.fromkeys(order[:size], "test") | dict.fromkeys(order[size : 2 * size], "dev")
    splits: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for line, (english, _) in zip(lines, keys, strict=True):
        splits[split_of.get(english, "train")].append(line)
    return splits


def sentence_key(sentence: str) -> str:
    """Return the letters, marks and digits of a sentence, case-folded."""
    folded = unicodedata.normalize("NFKC", sentence).casefold()
    return "".join(char for char in folded if unicodedata.category(char)[0] in "LMN") or folded


def pack(lines: list[str]) -> bytes:
    """Compress lines reproducibly."""
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)


def write_folder(folder: Path, contents: dict[str, bytes]) -> None:
    """Write a temporary folder and rename it to `folder`."""
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        for name, content in contents.items():
            (temporary / name).write_bytes(content)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)

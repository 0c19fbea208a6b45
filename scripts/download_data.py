"""Fetch a public parallel corpus into data/: `python scripts/download_data.py multi30k`.

Needs nothing but Python. The corpora stay under their own licences, printed at the end; files that
are already there and right are kept. Multi30k is a fixed release, checked by sha256. The Tatoeba
pairs of manythings.org (anki-eng-*) change with time: this script splits what it gets into train,
dev and test by a fixed rule of its own, so compare scores only where the printed sha256 agrees.
"""

import argparse
import gzip
import hashlib
import http.client
import io
import shutil
import ssl
import sys
import unicodedata
import urllib.error
import urllib.request
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

MULTI30K_URL = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw"
)
MULTI30K_LICENCE = (
    "Multi30k (Elliott et al. 2016, 2017; Barrault et al. 2018): "
    "for non-commercial research and education only."
)
# sha256 of each file once unpacked
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
ANKI_LANGUAGES = {"anki-eng-mar": "mar", "anki-eng-deu": "deu", "anki-eng-fra": "fra"}

USER_AGENT = "seq2seq-download-data/0.1"  # manythings.org refuses Python's default
NO_CERTIFICATES = (
    "; where this Python knows no certificates run the 'Install Certificates.command' that came "
    "with it, or name a file of them in SSL_CERT_FILE"
)
TIMEOUT = 60  # seconds without a byte
MOST_DOWNLOADED = 64 * 2**20  # bytes a file; the largest today has about 15 MB
MOST_UNPACKED = 512 * 2**20
HELD_OUT = 1000  # English sentences each in dev and test


class DownloadError(Exception):
    """What went wrong, in one line for the user."""


def main(argv: list[str] | None = None) -> int:
    """Fetch one corpus; return the exit code."""
    arguments = parse(argv)
    folder = Path(arguments.output) / arguments.name
    try:
        if arguments.name == "multi30k":
            fetch_multi30k(arguments.base_url or MULTI30K_URL, folder)
        else:
            fetch_anki(arguments.base_url or ANKI_URL, folder, ANKI_LANGUAGES[arguments.name])
    except (DownloadError, OSError) as error:
        print(f"download_data: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("download_data: interrupted", file=sys.stderr)
        return 130
    return 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Fetch a public parallel corpus.")
    parser.add_argument("name", choices=["multi30k", *ANKI_LANGUAGES])
    parser.add_argument("--output", default="data", help="parent of the new folder (data)")
    parser.add_argument("--base-url", help="a mirror that holds the same file names")
    arguments = parser.parse_args(argv)
    if arguments.base_url and not arguments.base_url.startswith(("http://", "https://")):
        parser.error(f"--base-url must begin with http:// or https://, not {arguments.base_url!r}")
    return arguments


def fetch_multi30k(base_url: str, folder: Path) -> None:
    """Fetch every file that is missing or wrong, and keep only what has the right content."""
    for name, expected in MULTI30K.items():
        path = folder / name
        if path.exists() and content_sha256(path.read_bytes()) == expected:
            print(f"{path}: already there")
            continue
        packed = download(f"{base_url}/{name}")
        found = content_sha256(packed)
        if found != expected:
            raise DownloadError(
                f"{name}: its content has sha256 {found} but should have {expected}; "
                "the file was not kept"
            )
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, packed)
        print(f"{path}: {len(packed):,} bytes, sha256 as expected")
    print(MULTI30K_LICENCE)


def content_sha256(packed: bytes) -> str:
    """Hash what a gzip file holds, or say in words why that cannot be."""
    try:
        with gzip.open(io.BytesIO(packed)) as stream:
            return hashlib.sha256(read_at_most(stream.read, MOST_UNPACKED, "content")).hexdigest()
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return "(not a whole gzip file)"


def fetch_anki(base_url: str, folder: Path, language: str) -> None:
    """Fetch the English pairs of one language and write train, dev and test, all three or none."""
    names = [f"{split}.tsv.gz" for split in ("train", "dev", "test")]
    there = [name for name in names if (folder / name).exists()]
    if there == names:
        print(f"{folder}: already there")
        return
    if folder.exists():
        raise DownloadError(f"{folder} is there but is not whole: remove it, or choose an --output")
    archive = download(f"{base_url}/{language}-eng.zip")
    print(
        f"{language}-eng.zip: {len(archive):,} bytes, sha256 {hashlib.sha256(archive).hexdigest()}"
    )
    splits = split_pairs(read_pairs(archive, f"{language}.txt"))
    files = {f"{split}.tsv.gz": pack(lines) for split, lines in splits.items()}
    write_folder(folder, files)
    for split, lines in splits.items():
        print(f"{folder / split}.tsv.gz: {len(lines):,} pairs")
    print("The split is this script's own: compare scores only where the sha256 above is the same.")
    print(ANKI_LICENCE)


def download(url: str) -> bytes:
    """Return the whole body of a URL, no larger than `MOST_DOWNLOADED`."""
    request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            promised = response.headers.get("Content-Length")
            body = read_at_most(response.read, MOST_DOWNLOADED, url)
    except urllib.error.HTTPError as error:
        raise DownloadError(f"{url}: the server answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        mend = NO_CERTIFICATES if isinstance(error.reason, ssl.SSLCertVerificationError) else ""
        raise DownloadError(f"{url}: {error.reason}{mend}") from error
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(f"{url}: {error!r}") from error
    if promised is not None and promised != str(len(body)):
        raise DownloadError(f"{url}: cut short, {len(body):,} of {promised} bytes came; try again")
    return body


def read_at_most(read: Callable[[int], bytes], limit: int, what: str) -> bytes:
    """Read to the end of a stream, but refuse one that would fill the memory."""
    content = bytearray()
    while chunk := read(2**20):
        content += chunk
        if len(content) > limit:
            raise DownloadError(f"{what}: larger than {limit:,} bytes, so not what was expected")
    return bytes(content)


def read_pairs(archive: bytes, member: str) -> list[str]:
    """Read one text file of a zip, in memory: lines of English, tab, translation, tab, source."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as files, files.open(member) as stream:
            text = read_at_most(stream.read, MOST_UNPACKED, member).decode("utf-8-sig")
    except KeyError as error:
        raise DownloadError(f"the zip file has no {member}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DownloadError(f"what came is not a sound zip file: {error}") from error
    except UnicodeDecodeError as error:
        raise DownloadError(f"{member}: not UTF-8 at byte {error.start:,}") from error
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    for number, line in enumerate(lines, start=1):
        columns = line.split("\t")
        if len(columns) < 2 or not columns[0].strip() or not columns[1].strip():
            raise DownloadError(f"{member}:{number}: not a sentence, a tab and its translation")
    return lines


def split_pairs(lines: list[str]) -> dict[str, list[str]]:
    """Deal pairs out to train, dev and test so that none shares a sentence of either language.

    Sentences are the same if they differ in case, punctuation and spaces only. Those whose
    translations belong to no other English sentence fill test, then dev, in the order of a hash of
    the English; each gets a tenth of all English sentences, but at most `HELD_OUT`.
    """
    keys = [tuple(sentence_key(side) for side in line.split("\t")[:2]) for line in lines]
    sources = defaultdict(set)
    for english, translation in keys:
        sources[translation].add(english)
    tied = {english for english, translation in keys if len(sources[translation]) > 1}
    everything = {english for english, _ in keys}
    size = min(HELD_OUT, len(everything) // 10)
    order = sorted(everything - tied, key=lambda key: hashlib.sha256(key.encode()).digest())
    split_of = dict.fromkeys(order[:size], "test") | dict.fromkeys(order[size : 2 * size], "dev")
    splits: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for line, (english, _) in zip(lines, keys, strict=True):
        splits[split_of.get(english, "train")].append(line)
    return splits


def sentence_key(sentence: str) -> str:
    """Reduce a sentence to its letters, marks and digits, without case."""
    folded = unicodedata.normalize("NFKC", sentence).casefold()
    return "".join(char for char in folded if unicodedata.category(char)[0] in "LMN") or folded


def pack(lines: list[str]) -> bytes:
    """Gzip lines so that the same lines give the same bytes."""
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)


def replace_file(path: Path, content: bytes) -> None:
    """Write aside, then rename: nobody ever finds half a file."""
    aside = path.with_name(f".{path.name}.part")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Make a new folder with these files, by one rename."""
    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        for name, content in files.items():
            (aside / name).write_bytes(content)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

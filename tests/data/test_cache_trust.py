"""The token cache trusts no link, other user or manifest, and tolerates the loss of a file."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_small_corpus
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_cache import (
    LONGEST,
    VOCABULARY,
    Built,
    assert_same_data,
    build_cache,
    entry,
    load_data,
    read_into_memory,
    write_files,
)
from tiers import one_quick

from seq2seq.cli.main import main
from seq2seq.config.schema import ParallelFiles, VocabularyConfig
from seq2seq.data import array_file, packed_sequences
from seq2seq.data.cache import verification
from seq2seq.data.cache.entries import (
    FORMAT,
    MANIFEST,
    STALE,
    UNRECORDED,
    _sha256,
)
from seq2seq.data.cache.records import scan
from seq2seq.data.training_data import FOLDER, cache_of, training_data
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, PAD_ID
from seq2seq.runs.layout import BEST, LOG, METRICS
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.files import PART_SUFFIX
from seq2seq.runtime.folders import PrivateFolder

UNPRIVILEGED = 65534
posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are those of POSIX")
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_cache(tmp_path_factory.mktemp("built"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "run"


@pytest.fixture
def copied(built: Built, run: Path) -> Path:
    """Copy the cache for the run; return the folder of its cached text."""
    built.copied_to(run)
    return entry(run, "text").parent


def refusal(files: ParallelFiles, run: Path) -> str:
    with pytest.raises(UserError) as refused:
        load_data(files, run)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def content_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# ------------------------------------------------------------------------------------------- links


@pytest.mark.parametrize("level", ["cache", "text", "lock"])
def test_links_to_a_folder_or_a_lock_are_refused(
    built: Built, run: Path, copied: Path, tmp_path: Path, level: str
) -> None:
    """The link points to a folder with the layout of a cache, in which files would be deleted."""
    link = {"cache": cache_of(run), "text": copied, "lock": copied / "lock"}[level]
    outside = tmp_path / "outside"
    link.rename(outside)
    link.symlink_to(outside)
    if outside.is_dir():
        (outside / f"precious{PART_SUFFIX}").write_bytes(b"precious")
        (outside / "text").mkdir(exist_ok=True)
        (outside / "text" / MANIFEST).write_bytes(b"precious")
    before = content_of(tmp_path)
    error = refusal(built.files, run)
    assert error == f"{link}: is a symbolic link; refusing to write through it. Remove it"
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("kind", ["text", "vocabulary", "tokens"])
def test_a_link_in_place_of_an_entry_is_replaced(
    built: Built, run: Path, tmp_path: Path, kind: str
) -> None:
    built.copied_to(run)
    outside = tmp_path / "outside"
    place = entry(run, kind)
    place.rename(outside)
    place.symlink_to(outside)
    before = content_of(outside)
    found = load_data(built.files, run)
    assert found.built == [kind]
    assert found.notes == [f"{place}: rebuilt because it is a symbolic link"]
    assert_same_data(found, built.wanted)
    assert content_of(outside) == before


@pytest.mark.parametrize("name", ["src.text", MANIFEST])
def test_a_link_in_place_of_a_file_of_an_entry_is_not_followed(
    built: Built, run: Path, copied: Path, tmp_path: Path, name: str
) -> None:
    path = copied / "text" / name
    path.rename(tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    before = (tmp_path / "outside").read_bytes()
    found = load_data(built.files, run)
    assert found.notes == [f"{copied / 'text'}: rebuilt because {name} is a symbolic link"]
    assert_same_data(found, built.wanted)
    assert (tmp_path / "outside").read_bytes() == before


def test_partial_entries_that_are_links_are_removed_without_their_targets(
    built: Built, run: Path, copied: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "mine").write_bytes(b"precious")
    (copied / f"text.1{PART_SUFFIX}").symlink_to(tmp_path / "outside")
    shutil.rmtree(entry(run, "tokens"))
    assert_same_data(load_data(built.files, run), built.wanted)
    assert not list(copied.glob(f"*{PART_SUFFIX}"))
    assert (tmp_path / "outside" / "mine").read_bytes() == b"precious"


@posix
def test_a_folder_that_is_replaced_after_it_was_opened_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    folder = PrivateFolder(tmp_path / "cache", create=True)
    address = folder.address
    (tmp_path / "cache").rename(tmp_path / "moved")
    (tmp_path / "cache").symlink_to(tmp_path / "outside")
    folder.write("a", b"1")
    with folder.temporary("b") as part, part.create("c") as file:
        file.write(b"2")
    assert not list((tmp_path / "outside").iterdir())
    assert content_of(tmp_path / "moved") == {"a": b"1"}
    with pytest.raises(UserError, match="is a symbolic link"):
        PrivateFolder.reopen(address)
    (tmp_path / "cache").unlink()
    (tmp_path / "cache").mkdir()
    with pytest.raises(OSError, match="replaced by another folder"):
        PrivateFolder.reopen(address)
    (tmp_path / "cache").rmdir()
    (tmp_path / "moved").rename(tmp_path / "cache")
    assert PrivateFolder.reopen(address).names() == ["a"]


# ------------------------------------------------------------------------------------- other users


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """Become an unprivileged user, and return a folder of that user."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can become another user")
    folder = Path(tempfile.mkdtemp())
    os.chown(folder, UNPRIVILEGED, -1)
    os.seteuid(UNPRIVILEGED)
    yield folder
    os.seteuid(0)
    shutil.rmtree(folder)


@as_root
def test_the_cache_of_another_user_is_not_used(built: Built, run: Path, copied: Path) -> None:
    """The cache is neither read nor written, even though its entries are intact."""
    shared = cache_of(run)
    os.chown(shared, UNPRIVILEGED, -1)
    shared.chmod(0o777)
    before = content_of(shared)
    found = load_data(built.files, run)
    assert found.built == ["text", "vocabulary", "tokens"]
    assert found.notes == [
        f"note: {shared} belongs to another user and is not used",
        f"training text and token ids are cached in {run / FOLDER / copied.name}",
    ]
    assert content_of(shared) == before
    assert (run / FOLDER).stat().st_mode & 0o777 == 0o700
    assert load_data(built.files, run).built == []
    os.chown(run / FOLDER, UNPRIVILEGED, -1)
    assert f"{run / FOLDER}: belongs to another user (uid {UNPRIVILEGED}); refusing" in refusal(
        built.files, run
    )


@as_root
def test_a_folder_planted_by_another_user_gets_no_text(
    built: Built, run: Path, copied: Path
) -> None:
    shutil.rmtree(copied)
    copied.mkdir()
    os.chown(copied, UNPRIVILEGED, -1)
    copied.chmod(0o777)
    error = refusal(built.files, run)
    assert error == (
        f"{copied}: belongs to another user (uid {UNPRIVILEGED}); refusing to use it. "
        "Remove it, or set another run_dir"
    )
    assert not list(copied.iterdir())


@as_root
@pytest.mark.parametrize("kind", ["text", "vocabulary", "tokens"])
@pytest.mark.parametrize("is_entry", [True, False])
def test_an_entry_or_a_file_of_another_user_is_replaced(
    built: Built, run: Path, kind: str, is_entry: bool
) -> None:
    built.copied_to(run)
    path = entry(run, kind)
    name = {"text": "src.text", "vocabulary": "joint.model", "tokens": "src.ids"}[kind]
    os.chown(path if is_entry else path / name, UNPRIVILEGED, -1)
    found = load_data(built.files, run)
    assert found.built == [kind]
    subject = "it" if is_entry else f"{name} cannot be read (it"
    assert found.notes[0].startswith(f"{path}: rebuilt because {subject} belongs to another user")
    assert_same_data(found, built.wanted)
    assert path.stat().st_uid == (path / MANIFEST).stat().st_uid == 0


def test_an_entry_that_cannot_be_removed_is_moved_out_of_the_way(unprivileged: Path) -> None:
    """The entry was planted by another user before the permissions of the cache were corrected."""
    files, run = write_files(unprivileged / "data"), unprivileged / "runs" / "run"
    assert load_data(files, run).built == ["text", "vocabulary", "tokens"]
    path = entry(run, "text")
    os.seteuid(0)
    shutil.copytree(path, unprivileged / "planted")
    shutil.rmtree(path)
    (unprivileged / "planted").chmod(0o755)
    (unprivileged / "planted").rename(path)
    os.seteuid(UNPRIVILEGED)
    found = load_data(files, run)
    assert found.notes == [f"{path}: rebuilt because it belongs to another user"]
    assert_same_data(found, read_into_memory(files))


@posix
@pytest.mark.parametrize("umask", [0, 0o22, 0o77])
def test_the_cache_is_made_private_whatever_its_permissions_were(
    built: Built, run: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        load_data(built.files, run)
        folders = [cache_of(run), entry(run, "text").parent]
        assert [path.stat().st_mode & 0o777 for path in folders] == [0o700] * 2
        for path in folders:
            path.chmod(0o777)
        assert load_data(built.files, run).notes == []
        assert [path.stat().st_mode & 0o777 for path in folders] == [0o700] * 2
    finally:
        os.umask(before)


@posix
def test_a_file_system_without_permissions_is_reported(
    built: Built, run: Path, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_of(run).chmod(0o755)
    copied.chmod(0o755)
    monkeypatch.setattr(os, "fchmod", lambda *_: None)
    found = load_data(built.files, run)
    assert found.notes == [
        f"note: {copied}: the file system keeps permissions of other users, who may read the "
        "training text there"
    ]
    assert_same_data(found, built.wanted)


@posix
def test_a_file_system_that_maps_owners_is_accepted(
    built: Built, run: Path, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network file system assigns all files to one user, who does not own the process."""
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    found = load_data(built.files, run)
    assert found.built == found.notes == []
    assert_same_data(found, built.wanted)
    assert sorted(path.name for path in cache_of(run).iterdir()) == [copied.name]


# ------------------------------------------------------------------------------- forged manifests

Change = Callable[[Path, dict[str, Any]], None]


def reseal(folder: Path, change: Change) -> None:
    """Change an entry, then its manifest so that all of its checksums are valid."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    change(folder, manifest)
    for name in list(manifest["files"]) if isinstance(manifest["files"], dict) else ():
        path = folder / name
        if "\0" not in name and path.is_file() and manifest["files"][name]:
            with path.open("rb") as file:
                manifest["files"][name] = [path.stat().st_size, scan(file).sha256]
    del manifest["checksum"]
    (folder / MANIFEST).write_text(json.dumps({**manifest, "checksum": _sha256(manifest)}))


def array(name: str, kind: type, change: Callable[[Any], Any]) -> Change:
    """Return a function that changes an array of an entry."""

    def act(folder: Path, _: dict[str, Any]) -> None:
        values = np.fromfile(folder / name, kind)
        found = change(values)
        (values if found is None else np.asarray(found, kind)).tofile(folder / name)

    return act


def put(row: int, value: int) -> Callable[[Any], None]:
    def act(values: Any) -> None:
        values[row] = value

    return act


def wrapped(values: Any) -> None:
    """Return ends whose differences are positive only because they overflow."""
    values[3:5] = 1 << 62, -(1 << 63)


def facts(**own: object) -> Change:
    return lambda _, manifest: manifest["facts"].update(own)


def manifest(**own: object) -> Change:
    return lambda _, manifest: manifest.update(own)


def named(name: str, record: object = (1, "0")) -> Change:
    return lambda _, manifest: manifest["files"].update({name: record})


def without(name: str) -> Change:
    def act(folder: Path, manifest: dict[str, Any]) -> None:
        (folder / name).unlink()
        del manifest["files"][name]

    return act


def write(name: str, content: bytes) -> Change:
    def act(folder: Path, manifest: dict[str, Any]) -> None:
        (folder / name).write_bytes(content)
        manifest["files"].setdefault(name, [0, ""])

    return act


def cut_short(name: str, count: int) -> Change:
    return lambda folder, _: os.truncate(folder / name, (folder / name).stat().st_size - count)


def in_a_character(folder: Path, _: dict[str, Any]) -> None:
    """Return ends of two adjacent lines that split a character of two bytes."""
    text = (folder / "src.text").read_bytes()
    ends = np.fromfile(folder / "src.ends", np.int64)
    place = text.index("\u0301".encode()) + 1
    row = int(np.searchsorted(ends, place))
    ends[row] = place
    ends.tofile(folder / "src.ends")


def no_pair(folder: Path, manifest: dict[str, Any]) -> None:
    for name in ("src.text", "src.ends", "tgt.text", "tgt.ends"):
        (folder / name).write_bytes(b"")
    manifest["facts"] = {"pairs": 0, "blank": 0, "same": 0}


def fewer_targets(folder: Path, manifest: dict[str, Any]) -> None:
    for name, kind in (("ends", np.int64), ("lengths", np.uint32)):
        array(f"tgt.{name}", kind, lambda values: values[:-1])(folder, manifest)


def other_model(config: VocabularyConfig, name: str = "joint.model") -> Change:
    def act(folder: Path, manifest: dict[str, Any]) -> None:
        lines = ["some other text", "of a few words", "with which a vocabulary is trained"] * 9
        model = train_vocabularies(config, lines, lines).src.model
        write(name, model)(folder, manifest)

    return act


TOO_LARGE = 1 << 15
POISONED: dict[str, tuple[str, Change]] = {
    "text: ends decrease": ("text", array("src.ends", np.int64, put(4, 0))),
    "text: ends behind the file": ("text", array("tgt.ends", np.int64, put(-1, 1 << 40))),
    "text: ends overflow": ("text", array("src.ends", np.int64, wrapped)),
    "text: ends negative": ("text", array("src.ends", np.int64, put(0, -5))),
    "text: ends before the end": ("text", array("src.text", np.uint8, lambda x: [*x, 97])),
    "text: an end less": ("text", array("src.ends", np.int64, lambda x: x[:-1])),
    "text: half an end": ("text", cut_short("src.ends", 3)),
    "text: not UTF-8": ("text", array("tgt.text", np.uint8, put(9, 255))),
    "text: an end in a character": ("text", in_a_character),
    "text: empty": ("text", no_pair),
    "text: a file empty": ("text", write("src.text", b"")),
    "text: no counts": ("text", manifest(facts={})),
    "text: counts of other types": ("text", facts(blank="1")),
    "text: a count negative": ("text", facts(blank=-1)),
    "text: a count too large": ("text", facts(same=10**6)),
    "text: another number of pairs": ("text", facts(pairs=7)),
    "text: a fact more": ("text", facts(other=7)),
    "text: counts in a list": ("text", manifest(facts=[1, 2])),
    "text: files in a list": ("text", manifest(files=["src.text"])),
    "text: no files": ("text", manifest(files={})),
    "text: no file of a name": ("text", without("tgt.ends")),
    "text: a file more": ("text", write("other", b"x")),
    "text: a file elsewhere": ("text", named("../text/src.text")),
    "text: an absolute name": ("text", named("/etc/passwd")),
    "text: a folder": ("text", named("..")),
    "text: no name": ("text", named("")),
    "text: NUL in a name": ("text", named("a\0b")),
    "text: an endless size": ("text", named("other", [float("inf"), "0"])),
    "text: a size that is no number": ("text", named("other", [float("nan"), "0"])),
    "text: no size": ("text", named("other", None)),
    "vocabulary: no model": ("vocabulary", write("joint.model", b"\x0a\xff garbage")),
    "vocabulary: an empty model": ("vocabulary", write("joint.model", b"")),
    "vocabulary: of another size": ("vocabulary", other_model(VocabularyConfig(size=284))),
    "vocabulary: of another type": (
        "vocabulary",
        other_model(VocabularyConfig(size=340, type="word")),
    ),
    "vocabulary: of one side": (
        "vocabulary",
        other_model(VocabularyConfig(size=284), "src.model"),
    ),
    "tokens: ids too large": ("tokens", array("src.ids", np.uint16, put(3, TOO_LARGE))),
    "tokens: padding": ("tokens", array("src.ids", np.uint16, put(3, PAD_ID))),
    "tokens: starts": ("tokens", array("tgt.ids", np.uint16, put(3, BOS_ID))),
    "tokens: ends": ("tokens", array("tgt.ids", np.uint16, put(3, EOS_ID))),
    "tokens: rows behind the text": ("tokens", array("rows", np.int64, put(-1, 10**6))),
    "tokens: rows negative": ("tokens", array("rows", np.int64, put(0, -1))),
    "tokens: rows twice": ("tokens", array("rows", np.int64, put(1, 0))),
    "tokens: rows overflow": ("tokens", array("rows", np.int64, wrapped)),
    "tokens: a row less": ("tokens", array("rows", np.int64, lambda x: x[:-1])),
    "tokens: other lengths": ("tokens", array("src.lengths", np.uint32, put(2, 1))),
    "tokens: too long": ("tokens", array("src.ends", np.int64, put(0, LONGEST + 1))),
    "tokens: a target less": ("tokens", fewer_targets),
    "tokens: half an id": ("tokens", cut_short("src.ids", 1)),
    "tokens: all empty": ("tokens", write("src.ids", b"")),
}


@pytest.mark.parametrize(("kind", "change"), POISONED.values(), ids=list(POISONED))
def test_a_resealed_entry_is_rebuilt_with_a_one_line_message(
    built: Built, run: Path, kind: str, change: Change
) -> None:
    built.copied_to(run)
    path = entry(run, kind)
    reseal(path, change)
    found = load_data(built.files, run)
    assert found.built == [kind]
    (note,) = found.notes
    assert note.startswith(f"{path}: rebuilt because ")
    assert "\n" not in note
    assert_same_data(found, built.wanted)
    assert load_data(built.files, run).built == []


@pytest.mark.parametrize(
    "change",
    [
        manifest(format=str(FORMAT)),
        manifest(format=FORMAT - 1),
        manifest(key={"files": {}}),
        manifest(key=None),
    ],
    ids=range(4),
)
def test_an_entry_of_another_version_or_key_is_stale(
    built: Built, run: Path, copied: Path, change: Change
) -> None:
    reseal(copied / "text", change)
    found = load_data(built.files, run)
    assert found.built == ["text", "vocabulary", "tokens"]
    assert found.notes[0] == f"{copied / 'text'}: rebuilt because {STALE}"
    assert_same_data(found, built.wanted)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"checksum": ' + b"9" * 5000 + b"}",
        b"null",
        b'"text"',
        b"[]",
        b"\xff\xfe",
        b"",
        b" " * (2 << 20),
        b'{"checksum": "\\ud800"}',
    ],
    ids=range(9),
)
def test_no_manifest_causes_a_traceback(
    built: Built, run: Path, copied: Path, content: bytes
) -> None:
    (copied / "text" / MANIFEST).write_bytes(content)
    found = load_data(built.files, run)
    assert found.built == ["text"]
    reason = f"{MANIFEST} is damaged or not a manifest"
    assert found.notes == [f"{copied / 'text'}: rebuilt because {reason}"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda each: (
        st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=4), each, max_size=3)
    ),
    max_leaves=4,
)
places = st.sampled_from(["format", "key", "facts", "files", "facts/pairs", "files/src.ends"])


@pytest.mark.thorough
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_resealed_entry_causes_a_traceback(
    built: Built, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The manifest has random values and the files random bytes, all with valid checksums."""
    run = tmp_path_factory.mktemp("fuzz") / "runs" / "run"
    built.copied_to(run)
    path = entry(run, data.draw(st.sampled_from(["text", "vocabulary", "tokens"])))

    def change(folder: Path, manifest: dict[str, Any]) -> None:
        if data.draw(st.booleans()):
            section, _, key = data.draw(places).partition("/")
            target = manifest[section] if key else manifest
            target[key or section] = data.draw(json_values)
            return
        names = sorted(each.name for each in folder.iterdir() if each.name != MANIFEST)
        file = folder / data.draw(st.sampled_from(names))
        content = bytearray(file.read_bytes())
        start = data.draw(st.integers(0, len(content)))
        new = data.draw(st.binary(max_size=9))
        content[start : start + data.draw(st.sampled_from([0, len(new), 1 << 20]))] = new
        file.write_bytes(content)

    reseal(path, change)
    found = load_data(built.files, run)
    assert bool(found.notes) == bool(found.built)
    assert not any("\n" in note for note in found.notes)
    size = len(found.vocabularies.src)
    for sides in (found.pairs.src, found.pairs.tgt):
        assert all(0 <= i < size for ids in sides for i in ids)
    shutil.rmtree(run.parents[1])


# ---------------------------------------------------------------------- content recorded by a run


def swap_case(folder: Path, _: dict[str, Any]) -> None:
    """Return another text of the same structure."""
    text = (folder / "src.text").read_bytes()
    (folder / "src.text").write_bytes(text.swapcase())


def swap_ids(folder: Path, _: dict[str, Any]) -> None:
    """Return other ids of the same structure: the first two source tokens of each pair swapped."""
    ids, ends = (np.fromfile(folder / f"src.{name}", kind) for name, kind in IDS.items())
    starts = np.append(0, ends[:-1])[np.diff(ends, prepend=0) > 1]
    ids[starts], ids[starts + 1] = ids[starts + 1], ids[starts]
    ids.tofile(folder / "src.ids")


IDS = {"ids": np.uint16, "ends": np.int64}


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("text", swap_case, "its first lines are not those of the files"),
        ("tokens", swap_ids, "its ids are not those of the text"),
    ],
)
def test_other_content_of_the_same_structure_is_detected_by_sampling(
    built: Built, run: Path, kind: str, change: Change, reason: str
) -> None:
    built.copied_to(run)
    path = entry(run, kind)
    reseal(path, change)
    found = load_data(built.files, run)
    assert (found.built, found.notes) == ([kind], [f"{path}: rebuilt because {reason}"])
    assert_same_data(found, built.wanted)


@pytest.fixture
def unsampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable sampling, as if only pairs outside the sample had changed."""
    monkeypatch.setattr(verification, "_FIRST_PAIRS", 0)
    monkeypatch.setattr(verification, "_SAMPLED_PAIRS", 0)


@pytest.mark.usefixtures("unsampled")
@pytest.mark.parametrize(
    ("kind", "change"),
    [("text", swap_case), ("text", facts(blank=5)), ("tokens", swap_ids)],
)
def test_an_entry_that_differs_from_the_recorded_one_is_rebuilt(
    built: Built, run: Path, kind: str, change: Change
) -> None:
    built.copied_to(run)
    with training_data(built.files, run) as data:
        vocabularies = data.vocabularies(VOCABULARY)
        data.pairs(vocabularies, LONGEST)
        digests = data.digests
    assert sorted(digests) == ["cache.text", "cache.tokens"]
    path = entry(run, kind)
    reseal(path, change)
    with training_data(built.files, run, digests) as data:
        pairs = data.pairs(vocabularies, LONGEST)
        assert data.digests == digests
        assert data.notes == [f"{path}: rebuilt because {UNRECORDED}"]
        assert list(data.text.src) == list(built.wanted.text.src)
        assert list(pairs.src) == list(built.wanted.pairs.src)
    with training_data(built.files, run, {"cache.tokens": "of another version"}) as data:
        data.pairs(vocabularies, LONGEST)
        rebuilt, warning = data.notes
        assert rebuilt == f"{entry(run, 'tokens')}: rebuilt because {UNRECORDED}"
        assert warning.startswith(f"warning: {entry(run, 'tokens')} differs from what the run was")


SETTINGS = (
    "training.validate_every=2",
    "training.log_every=1",
    "decoding.max_length=9",
    "training.batch_tokens=300",
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_small_corpus(tmp_path)


def trained(corpus: Path, run: str, steps: int, *options: str) -> int:
    place = corpus.parent / run
    settings = (*SETTINGS, f"training.max_steps={steps}", f"run_dir={place}", "--device", "cpu")
    return main(["train", str(corpus), *settings, *options])


@pytest.mark.usefixtures("unsampled")
def test_a_resumed_run_does_not_train_on_a_poisoned_cache(corpus: Path) -> None:
    assert trained(corpus, "uninterrupted", 4) == trained(corpus, "again", 2) == 0
    tokens = entry(corpus.parent / "again", "tokens")
    reseal(tokens, swap_ids)
    assert trained(corpus, "again", 4, "--resume") == 0
    expected, again = corpus.parent / "uninterrupted", corpus.parent / "again"
    assert f"{tokens}: rebuilt because {UNRECORDED}" in (again / LOG).read_text("utf-8")
    for name in (METRICS, BEST):
        assert (again / name).read_bytes() == (expected / name).read_bytes()


# --------------------------------------------------------------------------- files lost in training


@pytest.fixture
def read_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave small files on disk, as large ones are."""
    monkeypatch.setattr(array_file, "IN_MEMORY_BYTES", 0)


@pytest.mark.usefixtures("read_on_demand")
def test_arrays_read_on_demand_equal_those_in_memory(
    built: Built, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built.copied_to(run)
    found = load_data(built.files, run)
    assert_same_data(found, built.wanted)
    lengths, wanted = found.pairs.src.lengths, np.asarray(built.wanted.pairs.src.lengths)
    keys = (slice(None), slice(1, None, 3), slice(9, 2, -2), slice(5, 5), slice(-3, None))
    for key in (*keys, np.array([7, 0, 7, -1]), wanted > 9, 4, -2):
        assert np.array_equal(lengths[key], wanted[key]), key
    with pytest.raises(IndexError):
        lengths[len(wanted)]
    assert found.pairs.src[3:9:2] == built.wanted.pairs.src[3:9:2]
    assert found.text.src[-5:] == built.wanted.text.src[-5:]
    keys = (slice(0, None, 3), slice(2, 80, 40), slice(5, 4), slice(40, 2, -7), slice(1, 90, 31))
    for limit in (1 << 22, 0):
        monkeypatch.setattr(packed_sequences, "_MAX_READ_BYTES", limit)
        for key in (*keys, slice(None), slice(3, 9)):
            assert found.text.src[key] == built.wanted.text.src[key]
    monkeypatch.setattr(packed_sequences, "_READ_LINES", 40)
    for key in keys:
        assert found.text.src[key] == built.wanted.text.src[key]


@pytest.mark.usefixtures("read_on_demand")
@pytest.mark.parametrize("name", ["src.ids", "tgt.ends", "src.lengths", "rows", "text/src.text"])
def test_reading_a_truncated_file_is_an_error_of_one_line(
    built: Built, run: Path, copied: Path, name: str
) -> None:
    """A memory-mapped file would end the process with SIGBUS."""
    pairs = load_data(built.files, run).pairs
    path = copied / name if "/" in name else entry(run, "tokens") / name
    os.truncate(path, 0)
    read = {
        "src.ids": pairs.src,
        "tgt.ends": pairs.tgt,
        "src.lengths": pairs.src.lengths,
        "rows": pairs.tgt_texts,
        "text/src.text": pairs.src_texts,
    }[name]
    with pytest.raises(RunError) as lost:
        read[1::2]
    assert str(lost.value).startswith(f"{path}: was truncated while it was in use. ")
    assert "\n" not in str(lost.value)


@pytest.mark.usefixtures("read_on_demand")
def test_deleted_files_remain_readable(built: Built, run: Path) -> None:
    built.copied_to(run)
    found = load_data(built.files, run)
    shutil.rmtree(cache_of(run))
    assert_same_data(found, built.wanted)


@pytest.mark.usefixtures("read_on_demand")
@one_quick("sampling", [0, 0.3])
def test_training_on_a_truncated_cache_ends_in_one_line_and_resumes(
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sampling: float,
) -> None:
    from seq2seq.training import loop

    option = f"vocabulary.sampling={sampling}"
    assert trained(corpus, "uninterrupted", 6, option) == 0
    step = loop.train_step

    def truncating(session: Any, *arguments: Any) -> Any:
        if session.progress.step == 4:
            for path in cache_of(corpus.parent / "again").rglob("*"):
                if path.is_file() and path.name not in ("lock", MANIFEST):
                    os.truncate(path, path.stat().st_size // 2)
        return step(session, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "train_step", truncating)
        capsys.readouterr()
        assert trained(corpus, "again", 6, option) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "was truncated while it was in use. It is in the token cache, which is rebuilt" in error
    assert error.startswith("seq2seq: error: ")
    assert error.endswith("continue with --resume")
    assert trained(corpus, "again", 6, option, "--resume") == 0
    expected, again = corpus.parent / "uninterrupted", corpus.parent / "again"
    assert (again / METRICS).read_bytes() == (expected / METRICS).read_bytes()

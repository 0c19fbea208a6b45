"""The token cache is private; a run resumes on what it recorded."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from cases.cached_data import (
    LONGEST,
    VOCABULARY,
    Built,
    assert_same_data,
    build_cache,
    cut,
    entry,
    load_data,
    read_into_memory,
    write_files,
)
from cases.toy_text import write_small_corpus

from seq2seq.__main__ import main
from seq2seq.data import token_cache
from seq2seq.data.token_cache import MANIFEST, UNRECORDED
from seq2seq.data.training_data import (
    FOLDER,
    cache_of,
    cached_text,
    cached_vocabularies,
    encoded_text,
    open_cache,
)
from seq2seq.runs.layout import BEST, LOG, METRICS
from seq2seq.runtime.files import PART_SUFFIX

pytestmark = pytest.mark.usefixtures("no_engine")

UNPRIVILEGED = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


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


def content_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("kind", ["text", "vocabulary", "tokens"])
def test_a_link_that_leads_nowhere_in_place_of_an_entry_is_replaced(
    built: Built, run: Path, tmp_path: Path, kind: str
) -> None:
    built.copied_to(run)
    place = entry(run, kind)
    place.rename(tmp_path / "outside")
    place.symlink_to(tmp_path / "nowhere")
    content_before = content_of(tmp_path / "outside")
    data = load_data(built.files, run)
    assert data.built == [kind]
    assert not place.is_symlink()
    assert_same_data(data, built.in_memory)
    assert content_of(tmp_path / "outside") == content_before


def test_partial_entries_that_are_links_are_removed_without_their_targets(
    built: Built, run: Path, copied: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "mine").write_bytes(b"precious")
    (copied / f"text.1{PART_SUFFIX}").symlink_to(tmp_path / "outside")
    shutil.rmtree(entry(run, "tokens"))
    assert_same_data(load_data(built.files, run), built.in_memory)
    assert not list(copied.glob(f"*{PART_SUFFIX}"))
    assert (tmp_path / "outside" / "mine").read_bytes() == b"precious"


# ------------------------------------------------------------------------------------- other users


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """Become an unprivileged user, and return a folder of that user."""
    if os.geteuid() != 0:
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
    shared_cache = cache_of(run)
    os.chown(shared_cache, UNPRIVILEGED, -1)
    shared_cache.chmod(0o777)
    content_before = content_of(shared_cache)
    data = load_data(built.files, run)
    assert data.built == ["text", "vocabulary", "tokens"]
    assert data.notes == [
        f"note: {shared_cache} belongs to another user and is not used",
        f"training text and token ids are cached in {run / FOLDER / copied.name}",
    ]
    assert content_of(shared_cache) == content_before
    assert (run / FOLDER).stat().st_mode & 0o777 == 0o700
    assert load_data(built.files, run).built == []


@as_root
def test_a_folder_planted_by_another_user_gets_no_text(
    built: Built, run: Path, copied: Path
) -> None:
    os.chown(copied, UNPRIVILEGED, -1)
    copied.chmod(0o777)
    (copied / "planted").touch()
    assert_same_data(load_data(built.files, run), built.in_memory)
    assert not (copied / "planted").exists()
    assert (copied.stat().st_uid, copied.stat().st_mode & 0o777) == (os.geteuid(), 0o700)
    assert list(cache_of(run).iterdir()) == [copied]


@as_root
@pytest.mark.parametrize("kind", ["text", "vocabulary", "tokens"])
def test_an_entry_of_another_user_is_replaced(built: Built, run: Path, kind: str) -> None:
    built.copied_to(run)
    path = entry(run, kind)
    os.chown(path, UNPRIVILEGED, -1)
    data = load_data(built.files, run)
    assert data.built == [kind]
    assert data.notes == [f"{path}: rebuilt because it belongs to another user"]
    assert_same_data(data, built.in_memory)
    assert path.stat().st_uid == 0


def test_an_entry_that_cannot_be_removed_is_moved_out_of_the_way(unprivileged: Path) -> None:
    """The entry was planted by another user before the permissions of the cache were corrected."""
    files = write_files(unprivileged / "data")
    run = unprivileged / "runs" / "run"
    assert load_data(files, run).built == ["text", "vocabulary", "tokens"]
    path = entry(run, "text")
    os.seteuid(0)
    shutil.copytree(path, unprivileged / "planted")
    shutil.rmtree(path)
    (unprivileged / "planted").chmod(0o755)
    (unprivileged / "planted").rename(path)
    os.seteuid(UNPRIVILEGED)
    data = load_data(files, run)
    assert data.notes == [f"{path}: rebuilt because it belongs to another user"]
    assert_same_data(data, read_into_memory(files))


@pytest.mark.parametrize("umask", [0, 0o22, 0o77])
def test_the_cache_is_made_private_whatever_its_permissions_were(
    built: Built, run: Path, umask: int
) -> None:
    umask_before = os.umask(umask)
    try:
        load_data(built.files, run)
        folders = [cache_of(run), entry(run, "text").parent]
        assert [path.stat().st_mode & 0o777 for path in folders] == [0o700] * 2
        for path in folders:
            path.chmod(0o777)
        assert load_data(built.files, run).notes == []
        assert [path.stat().st_mode & 0o777 for path in folders] == [0o700] * 2
    finally:
        os.umask(umask_before)


# ---------------------------------------------------------------------- content recorded by a run


def swap_case(folder: Path) -> None:
    """Write another text of the same structure."""
    text = (folder / "src.text").read_bytes()
    (folder / "src.text").write_bytes(text.swapcase())


def swap_ids(folder: Path) -> None:
    """Write other ids of the same structure: the first two source tokens of each pair swapped."""
    ids = np.fromfile(folder / "src.ids", np.uint16)
    ends = np.fromfile(folder / "src.ends", int)
    starts = np.append(0, ends[:-1])[np.diff(ends, prepend=0) > 1]
    ids[starts], ids[starts + 1] = ids[starts + 1], ids[starts]
    ids.tofile(folder / "src.ids")


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify all files only on resume, as large ones are."""
    monkeypatch.setattr(token_cache, "SMALL_FILE", 0)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(("kind", "change"), [("text", swap_case), ("tokens", swap_ids)])
def test_an_entry_that_differs_from_the_recorded_one_is_rebuilt(
    built: Built, run: Path, kind: str, change: Callable[[Path], None]
) -> None:
    built.copied_to(run)
    with open_cache(built.files, run) as cache:
        text, _ = cached_text(built.files, cache)
        vocabularies, _ = cached_vocabularies(text, VOCABULARY)
        digests = encoded_text(text, vocabularies, LONGEST)[0].digests
    assert sorted(digests) == ["cache.text", "cache.tokens"]
    path = entry(run, kind)
    change(path)
    name = "src.text" if kind == "text" else "src.ids"
    with open_cache(built.files, run) as cache:
        text, text_notes = cached_text(built.files, cache, digests)
        encoded, notes = encoded_text(text, vocabularies, LONGEST)
        assert encoded.digests == digests
        assert [*text_notes, *notes] == [f"{path}: rebuilt because {name} is damaged"]
        assert list(text.text.src) == list(built.in_memory.text.src)
        assert list(encoded.pairs.src) == list(built.in_memory.pairs.src)
    with open_cache(built.files, run) as cache:
        text, _ = cached_text(built.files, cache, {"cache.tokens": "of another version"})
        _, (rebuilt, warning) = encoded_text(text, vocabularies, LONGEST)
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


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (swap_ids, "src.ids is damaged"),
        (lambda tokens: cut(tokens / "rows"), "rows is missing or of another size"),
    ],
    ids=["swapped ids", "a truncated file"],
)
def test_a_run_resumes_exactly_after_its_cache_was_changed(
    corpus: Path, change: Callable[[Path], None], reason: str
) -> None:
    assert trained(corpus, "uninterrupted", 4) == trained(corpus, "again", 2) == 0
    tokens = entry(corpus.parent / "again", "tokens")
    change(tokens)
    assert trained(corpus, "again", 4, "--resume") == 0
    expected = corpus.parent / "uninterrupted"
    again = corpus.parent / "again"
    assert f"{tokens}: rebuilt because {reason}" in (again / LOG).read_text("utf-8")
    for name in (METRICS, BEST):
        assert (again / name).read_bytes() == (expected / name).read_bytes()


# ----------------------------------------------------------------------------------- mapped files


def test_mapped_arrays_equal_those_in_memory(built: Built, run: Path) -> None:
    built.copied_to(run)
    data = load_data(built.files, run)
    assert data.pairs.src[3:9:2] == built.in_memory.pairs.src[3:9:2]
    assert data.text.src[-5:] == built.in_memory.text.src[-5:]
    with pytest.raises(IndexError):
        data.pairs.src[len(built.in_memory.pairs)]
    keys = (slice(0, None, 3), slice(2, 80, 40), slice(5, 4), slice(40, 2, -7), slice(1, 90, 31))
    for key in (*keys, slice(None), slice(3, 9)):
        assert data.text.src[key] == built.in_memory.text.src[key]


def test_deleted_and_replaced_files_remain_readable(built: Built, run: Path) -> None:
    built.copied_to(run)
    data = load_data(built.files, run)
    cut(entry(run, "tokens") / MANIFEST)
    assert load_data(built.files, run).built == ["tokens"]
    shutil.rmtree(cache_of(run))
    assert_same_data(data, built.in_memory)

"""The token cache equals data in memory; it is reused if its inputs are unchanged, else rebuilt."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases.cached_data import (
    LONGEST,
    VOCABULARY,
    Built,
    LoadedData,
    assert_same_data,
    build_cache,
    count_same,
    cut,
    entry,
    load_data,
    read_into_memory,
    write_files,
)
from cases.environment import project_environment
from cases.stopped_trainings import run_until_killed
from cases.tiers import one_quick
from cases.toy_text import toy_pairs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import scaling
from seq2seq.config.schema import Corpus, ParallelFiles, VocabularyConfig, load_config
from seq2seq.data import batching, token_cache
from seq2seq.data import training_data as training_data_module
from seq2seq.data.batching import EpochOrder, encode_pairs, sampled_pairs
from seq2seq.data.corpus import read_pairs, source_name, usable
from seq2seq.data.token_cache import DIVISIONS, MANIFEST, STALE, Entry, copy_text, open_text
from seq2seq.data.training_data import FOLDER, PLACE, cache_of
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.runs.layout import LOG, METRICS
from seq2seq.runtime import locks, workers
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.files import PART_SUFFIX
from seq2seq.training.loop import train

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def files(tmp_path: Path) -> ParallelFiles:
    return write_files(tmp_path / "data")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "run"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_cache(tmp_path_factory.mktemp("built"))


# ----------------------------------------------------------------------------------------- content


@pytest.mark.parametrize("way", ["plain", "gz", "tsv"])
def test_a_built_and_a_reused_cache_equal_data_in_memory(
    tmp_path: Path, run: Path, way: str
) -> None:
    files = write_files(tmp_path / "data", way)
    in_memory = read_into_memory(files)
    assert (in_memory.blank, in_memory.same) == (1, 1)
    assert 0 < in_memory.pairs.too_long < 40
    first = load_data(files, run)
    assert first.built == ["text", "vocabulary", "tokens"]
    assert entry(run, "text").parent.stat().st_mode & 0o077 == 0
    second = load_data(files, run.with_name("another"))
    assert second.built == second.notes == []
    for cached in (first, second):
        assert_same_data(cached, in_memory)


@pytest.mark.thorough
def test_workers_give_the_same_data(
    files: ParallelFiles, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_data_module, "MAX_PAIRS_WITHOUT_WORKERS", 20)
    monkeypatch.setattr(training_data_module, "CHUNK_PAIRS", 7)
    monkeypatch.setattr(workers, "available_cores", lambda: 2)
    assert_same_data(load_data(files, run), read_into_memory(files))
    with pytest.raises(UserError, match=r"vocabulary.size: 9000 is more than this text allows"):
        load_data(files, run, VocabularyConfig(size=9000))


def test_samples_equal_those_of_text_in_memory(built: Built) -> None:
    rows = np.array([4, 60, 7, 11])
    samples = [
        sampled_pairs(data.pairs, rows, data.vocabularies, LONGEST, seed)
        for seed in (1, 2)
        for data in (load_data(built.files, built.run), built.in_memory)
    ]
    assert samples[0] == samples[1] != samples[2] == samples[3]


line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0"), max_size=6)
sides = st.lists(st.tuples(line, line), min_size=1, max_size=8)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sides, st.booleans(), st.sampled_from(["src-tgt", "tsv"]))
def test_copied_text_equals_the_text_read(
    tmp_path: Path, pairs: list[tuple[str, str]], ends_with_line_feed: bool, way: str
) -> None:
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    copy = tmp_path / "copy"
    copy.mkdir()
    end = "\n" if ends_with_line_feed else ""
    if way == "tsv":
        files = ParallelFiles(file=tmp_path / "tsv")
        text = "\n".join(f"{src}\t{tgt}" for src, tgt in pairs) + end
        (tmp_path / "tsv").write_bytes(text.encode())
    else:
        files = ParallelFiles(src=tmp_path / "src", tgt=tmp_path / "tgt")
        for side, path in enumerate((tmp_path / "src", tmp_path / "tgt")):
            path.write_bytes(("\n".join(pair[side] for pair in pairs) + end).encode())
    refusal = None
    try:
        text_read, blank = usable(read_pairs(files))
    except UserError as error:
        refusal = str(error)
    if refusal is not None:
        with pytest.raises(UserError) as refused:
            copy_text(files, copy)
        assert str(refused.value) == refusal
        return
    counts = copy_text(files, copy)
    sizes = {path.name: [path.stat().st_size, ""] for path in copy.iterdir()}
    copied_text = open_text(Entry(copy, counts, sizes), source_name(files))
    assert counts == {"pairs": len(text_read), "blank": blank, "same": count_same(text_read)}
    assert (list(copied_text.src), list(copied_text.tgt)) == (text_read.src, text_read.tgt)
    assert copied_text.source_name == text_read.source_name


BAD: dict[str, tuple[str, bytes]] = {
    "undecodable": ("src", b"a\nb\n\xff\n"),
    "NUL": ("tgt", b"a\nb\0\nc\n"),
    "a line less": ("src", b"a\nb\n"),
    "empty": ("src", b""),
    "a byte order mark": ("tgt", b"\xef\xbb\xbf"),
    "blank": ("src", b" \n\t\n\xe2\x80\x83\n"),
    "no gzip": ("gz", b"a\nb\nc\n"),
    "gzip cut off": ("gz", gzip.compress(b"a\nb\nc\n" * 99)[:-9]),
    "no tab": ("tsv", b"a\tb\nc\n"),
}


@pytest.mark.parametrize(("side", "data"), BAD.values(), ids=list(BAD))
def test_bad_text_is_refused_as_without_a_cache_and_leaves_no_files(
    tmp_path: Path, run: Path, side: str, data: bytes
) -> None:
    paths = {name: tmp_path / name for name in ("src", "tgt")}
    for path in paths.values():
        path.write_bytes(b"a\nb\nc\n")
    if side in ("gz", "tsv"):
        paths = {"file": tmp_path / "tsv"} if side == "tsv" else {**paths, "src": tmp_path / "a.gz"}
    paths.get({"tsv": "file"}.get(side, side), tmp_path / "a.gz").write_bytes(data)
    files = ParallelFiles(**paths)
    with pytest.raises(UserError) as without_cache:
        usable(read_pairs(files))
    with pytest.raises(UserError) as refused:
        load_data(files, run)
    assert str(refused.value) == str(without_cache.value)
    assert not run.parent.exists()


# --------------------------------------------------------------------------------------- rebuilding


def test_a_changed_file_is_noticed_and_dependent_entries_are_rebuilt(
    files: ParallelFiles, run: Path
) -> None:
    load_data(files, run)
    old = entry(run, "tokens").name
    assert files.src is not None
    stat = files.src.stat()
    data = files.src.read_bytes()
    files.src.write_bytes(data.replace(b"same", b"SAME"))
    os.utime(files.src, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # keep the old modification time
    assert files.src.stat().st_size == stat.st_size
    loaded = load_data(files, run)
    assert loaded.built == ["text", "vocabulary", "tokens"]
    assert len(loaded.notes) == 2
    assert (
        "text: rebuilt because the text or the settings behind it have changed" in loaded.notes[0]
    )
    assert_same_data(loaded, read_into_memory(files))
    assert entry(run, "tokens").name != old


def test_unchanged_files_are_not_read_again(
    files: ParallelFiles, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_data(files, run)
    monkeypatch.setattr(token_cache, "copy_text", die)
    assert load_data(files, run).built == []


def test_a_touched_file_is_read_again_and_the_tokens_of_its_text_are_kept(
    files: ParallelFiles, run: Path
) -> None:
    load_data(files, run)
    assert files.src is not None
    files.src.write_bytes(files.src.read_bytes())
    assert load_data(files, run).built == ["text"]


def test_a_file_that_changes_while_it_is_read_is_refused(
    files: ParallelFiles, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = token_cache.copy_text

    def changed(source: ParallelFiles, folder: Path) -> dict[str, int]:
        counts = copy(source, folder)
        os.utime(source.src or "")
        return counts

    monkeypatch.setattr(token_cache, "copy_text", changed)
    with pytest.raises(UserError, match="changed while being read"):
        load_data(files, run)


def test_another_vocabulary_or_length_has_another_entry(files: ParallelFiles, run: Path) -> None:
    load_data(files, run)
    smaller = VocabularyConfig(size=330)
    assert load_data(files, run, smaller).built == ["vocabulary", "tokens"]
    assert load_data(files, run, VOCABULARY, 12).built == ["tokens"]
    assert load_data(files, run, VocabularyConfig(size=340, sampling=0.9)).built == []
    for vocabulary, longest in ((smaller, LONGEST), (VOCABULARY, 12), (VOCABULARY, LONGEST)):
        assert load_data(files, run, vocabulary, longest).built == []


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def fill(path: Path) -> None:
    path.write_bytes(b'{"format": 1, "files": {}}' + path.read_bytes()[26:])


@pytest.mark.parametrize("damage", [cut, flip, fill, Path.unlink])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("text", "src.text"),
        ("text", "tgt.ends"),
        ("text", MANIFEST),
        ("vocabulary", "joint.model"),
        ("tokens", "src.ids"),
        ("tokens", "rows"),
        ("tokens", MANIFEST),
    ],
)
def test_damage_is_detected_and_repaired_with_a_one_line_message(
    built: Built, run: Path, kind: str, name: str, damage: Callable[[Path], None]
) -> None:
    if name == MANIFEST and damage is flip:
        damage = fill  # a manifest has no checksum of its own
    built.copied_to(run)
    damage(entry(run, kind) / name)
    data = load_data(built.files, run)
    assert data.built == [kind]
    (note,) = data.notes
    assert f"{entry(run, kind)}: rebuilt because {name} " in note
    assert "\n" not in note
    assert_same_data(data, built.in_memory)
    assert load_data(built.files, run).built == []


def test_files_and_links_in_place_of_entries_are_replaced(
    built: Built, run: Path, tmp_path: Path
) -> None:
    built.copied_to(run)
    for kind in ("text", "tokens"):
        path = entry(run, kind)
        shutil.rmtree(path)
        path.write_text("a file in its place")
    vocabulary = entry(run, "vocabulary")
    moved_entry = vocabulary.rename(tmp_path / "elsewhere")
    vocabulary.symlink_to(tmp_path / "nowhere")
    assert_same_data(load_data(built.files, run), built.in_memory)
    assert not entry(run, "vocabulary").is_symlink()
    assert (moved_entry / MANIFEST).is_file()


@pytest.mark.parametrize("content", [b"null", b'"text"', b"[]", b"\xff\xfe", b"", b'{"format": 0}'])
def test_no_manifest_causes_a_traceback(built: Built, run: Path, content: bytes) -> None:
    built.copied_to(run)
    (entry(run, "text") / MANIFEST).write_bytes(content)
    data = load_data(built.files, run)
    reason = STALE if b"format" in content else f"{MANIFEST} is missing or damaged"
    assert data.notes[0] == f"{entry(run, 'text')}: rebuilt because {reason}"
    assert_same_data(data, built.in_memory)


def test_batches_are_counted_once_for_all_starts(
    built: Built, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "BLOCK_PAIRS", 20)
    built.copied_to(run)
    expected_orders = [EpochOrder(built.in_memory.pairs, 200, 1, epoch) for epoch in (0, 1, None)]
    for epoch in (0, None):
        EpochOrder(load_data(built.files, run).pairs, 200, 1, epoch)
    pairs = load_data(built.files, run).pairs

    def refuse(_: EpochOrder) -> None:
        raise AssertionError("called again")

    with monkeypatch.context() as patch:
        patch.setattr(EpochOrder, "_divide", refuse)
        orders = [EpochOrder(pairs, 200, 1, epoch) for epoch in (0, 1, None)]
        with pytest.raises(AssertionError, match="called again"):
            EpochOrder(pairs, 300, 1, 0)
    for order, expected_order in zip(orders, expected_orders, strict=True):
        assert [rows.tolist() for rows in order] == [rows.tolist() for rows in expected_order]


@pytest.mark.parametrize("change", ["version", "numpy", "tokens", "damage"])
def test_batches_are_counted_again_if_their_number_may_differ(
    built: Built, run: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    built.copied_to(run)
    EpochOrder(load_data(built.files, run).pairs, 200, 1, 0)
    assert load_data(built.files, run).pairs.divisions
    if change == "version":
        monkeypatch.setattr(token_cache, "VERSION", 0)
    elif change == "numpy":
        monkeypatch.setattr(np, "__version__", "0")
    else:
        cut(entry(run, "tokens") / (MANIFEST if change == "tokens" else DIVISIONS))
    assert not load_data(built.files, run).pairs.divisions


# ---------------------------------------------------------------------------------------- failures


def test_the_cache_is_inside_the_run_if_its_parent_is_not_writable(
    files: ParallelFiles, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.mkdir(parents=True)
    assert cache_of(run) == run.parent / FOLDER
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path) != run.parent and access(path, mode)
    )
    data = load_data(files, run)
    assert cache_of(run) == run / FOLDER
    (note,) = data.notes
    assert f"are cached in {run / FOLDER}" in note
    assert not (run.parent / FOLDER).exists()


def test_the_environment_variable_sets_the_cache_folder_of_all_runs(
    files: ParallelFiles, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PLACE, "scratch/mine")
    place = tmp_path / "scratch" / "mine"
    data = load_data(files, run)
    assert_same_data(data, read_into_memory(files))
    assert f"are cached in {place / FOLDER}" in data.notes[-1]
    assert not (run.parent / FOLDER).exists()
    assert load_data(files, tmp_path / "other" / "run").built == []
    assert place.stat().st_mode & 0o777 != 0o700  # only the cache folder in it is private
    assert (place / FOLDER).stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv(PLACE, "")
    assert cache_of(run) == run.parent / FOLDER


@pytest.mark.parametrize("fault", ["a file", "too long", "read only", "foreign"])
def test_an_unusable_folder_in_the_environment_variable_is_refused(
    files: ParallelFiles, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    place = tmp_path / ("x" * 300 if fault == "too long" else "place")
    monkeypatch.setenv(PLACE, str(place))
    if fault == "a file":
        place.write_text("text", encoding="utf-8")
    elif fault == "read only":
        monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != tmp_path)
    elif fault == "foreign":
        monkeypatch.setattr(training_data_module, "is_foreign", lambda path: place in path.parents)
    with pytest.raises(UserError) as refused:
        load_data(files, run)
    name = "File name too long" if fault == "too long" else f"{PLACE}: {place / FOLDER} cannot be"
    assert name in str(refused.value)
    assert not run.parent.exists()


@pytest.mark.parametrize("failing", ["os.fsync", "os.rename", "os.mkdir"])
def test_a_cache_that_cannot_be_written_is_reported_in_one_line(
    files: ParallelFiles, run: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(failing, full)
        with pytest.raises(RunError) as raised:
            load_data(files, run)
    message = str(raised.value)
    place = ", in the token cache (SEQ2SEQ_CACHE sets another place)"
    assert f"{place}: cannot be written (No space left on device)" in message
    assert "\n" not in message
    assert not list(run.parent.rglob(f"*{PART_SUFFIX}"))
    assert_same_data(load_data(files, run), read_into_memory(files))


def die(*_: object) -> None:
    """Kill the worker that calls this."""
    os.kill(os.getpid(), signal.SIGKILL)


@one_quick("call", ["train_vocabularies", "encode_chunk"])
def test_a_lost_worker_is_reported_in_one_line(
    files: ParallelFiles, run: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(training_data_module, "MAX_PAIRS_WITHOUT_WORKERS", 20)
    monkeypatch.setattr(training_data_module, call, die)
    with pytest.raises(RunError, match="was killed, perhaps because memory ran out"):
        load_data(files, run)
    assert not list(run.parent.rglob(f"*{PART_SUFFIX}"))


def kill_at(operation: int) -> None:
    """Let the process kill itself at this number of writes and renames."""
    left = [operation]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    os.fsync, os.rename = counted(os.fsync), counted(os.rename)


@pytest.mark.thorough
def test_a_cache_whose_build_was_killed_is_completed(files: ParallelFiles, run: Path) -> None:
    """The process is killed while writing text, vocabulary and ids, each time a little later."""

    def build(operation: int) -> None:
        kill_at(operation)
        load_data(files, run)

    for operation in (3, 8, 2, 5, 12):
        run_until_killed(partial(build, operation))
    assert list(cache_of(run).rglob(f"*{PART_SUFFIX}"))
    assert_same_data(load_data(files, run), read_into_memory(files))
    assert not list(cache_of(run).rglob(f"*{PART_SUFFIX}"))


def test_runs_that_start_together_build_the_cache_once(files: ParallelFiles, run: Path) -> None:
    loaded: list[LoadedData] = []
    threads = [
        threading.Thread(target=lambda: loaded.append(load_data(files, run.with_name("run"))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    built = [name for data in loaded for name in data.built]
    assert sorted(built) == ["text", "tokens", "vocabulary"]
    for cached in loaded:
        assert_same_data(cached, read_into_memory(files))


def test_a_pipe_is_refused(files: ParallelFiles, run: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe: is not a regular file"):
        load_data(ParallelFiles(src=tmp_path / "pipe", tgt=files.tgt), run)
    assert not run.parent.exists()


# ----------------------------------------------------------------------------------------- training


@pytest.mark.thorough
@pytest.mark.usefixtures("no_engine")
def test_training_continues_without_its_cache_and_reports_counts(small_corpus: Path) -> None:
    with (small_corpus.parent / "train.src").open("a") as src:
        src.write(" \nba ba\n")
    with (small_corpus.parent / "train.tgt").open("a") as tgt:
        tgt.write(f"ba\n{'bo ' * 60}\n")

    def trained(run: str, steps: int, resume: bool = False) -> Path:
        short = ["decoding.max_length=9", "vocabulary.sampling=0.2", "training.validate_every=2"]
        short.append(f"training.max_steps={steps}")
        place = small_corpus.parent / run
        return train(load_config(small_corpus, [*short, f"run_dir={place}"]), "cpu", resume)

    uninterrupted = trained("uninterrupted", 5)
    again = trained("again", 2)
    text, _ = usable(
        read_pairs(
            ParallelFiles(
                src=small_corpus.parent / "train.src", tgt=small_corpus.parent / "train.tgt"
            )
        )
    )
    vocabularies = train_vocabularies(VOCABULARY, text.src, text.tgt)
    too_long = encode_pairs(text.src, text.tgt, vocabularies, 40).too_long
    assert too_long > 0
    for folder in (uninterrupted, again):  # cache built and reused
        log = (folder / LOG).read_text(encoding="utf-8")
        assert "skipped in training: 1 pair with a blank side\n" in log
        assert f"skipped in training: {too_long} pairs with more than 40 tokens on a side\n" in log
    shutil.rmtree(cache_of(again))
    trained("again", 5, resume=True)
    assert (again / METRICS).read_bytes() == (uninterrupted / METRICS).read_bytes()
    assert not (again / FOLDER).exists()


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    """Memory is constant for twenty times the text: 4 MB of text, 7 MB of ids, 50 MB as lists.

    Pages of the mapped files that have been read count as memory, though the system may take them.
    """
    src, tgt = toy_pairs(2000, seed=1)
    for side, lines in (("src", src), ("tgt", tgt)):
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    report = tmp_path / "report.json"
    options = ["--steps", "12", "--batches", "40", "--sizes", "2000,40000"]
    places = [tmp_path / "src", tmp_path / "tgt", "--folder", tmp_path, "--json", report]
    overrides = ["vocabulary.size=400", "vocabulary.type=bpe"]
    subprocess.run(
        [sys.executable, scaling.__file__, *map(str, places), *options, *overrides],
        cwd=ROOT,
        env=project_environment(),
        check=True,
    )
    small, large = json.loads(report.read_text())
    assert large["cache_mb"] > 10 * small["cache_mb"]
    for when in ("first_mb", "last_mb", "most_mb", "after_stream_mb"):
        assert large[when] < small[when] + 30, when


def test_one_process_opens_an_entry_while_another_builds_it(
    files: ParallelFiles, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one waits, and uses what the first one has built."""
    copy = token_cache.copy_text
    waiting = threading.Event()
    started: list[threading.Thread] = []
    loaded: list[LoadedData] = []

    def slow(*arguments: Any) -> Any:
        thread = threading.Thread(target=lambda: loaded.append(load_data(files, run)))
        started.append(thread)
        thread.start()
        assert waiting.wait(600)
        return copy(*arguments)

    monkeypatch.setattr(token_cache, "copy_text", slow)
    monkeypatch.setattr(locks.logger, "info", lambda _: waiting.set())
    assert load_data(files, run).built[0] == "text"
    (thread,) = started
    thread.join()
    assert_same_data(loaded[0], read_into_memory(files))
    assert "text" not in loaded[0].built


@pytest.mark.parametrize("letter", ["a", "ж", "字", "😀"])
def test_the_folder_of_a_cache_has_a_name_that_every_system_takes(letter: str) -> None:
    corpora = tuple(Corpus(src=f"{letter * 80}{n}.en", tgt=f"{letter * 80}{n}.de") for n in "12")
    name = training_data_module._folder_name(corpora)
    assert len(name.encode()) <= 255
    end_of_name = "_1.en" if letter == "😀" else letter * (40 // len(letter.encode()))
    assert name.startswith(f"{end_of_name}-")

"""`seq2seq split`: files named by a pattern, in the format and compression of their suffixes."""

import bz2
import gzip
import json
import os
from pathlib import Path

import pytest
from cases.toy_text import toy_pairs

from seq2seq.__main__ import main
from seq2seq.config.schema import ParallelFiles
from seq2seq.data.corpus import read_pairs

SIZES = ["--valid", "20", "--test", "10"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    src, tgt = toy_pairs(200, seed=1)
    src[5] = " "
    Path("all.en").write_text("".join(f"{line}\n" for line in src), encoding="utf-8")
    Path("all.de").write_text("".join(f"{line}\n" for line in tgt), encoding="utf-8")
    lines = "".join(f"{n},{a},{b}\n" for n, (a, b) in enumerate(zip(src, tgt, strict=True)))
    Path("all.csv").write_text(f"id,english,german\n{lines}", encoding="utf-8")
    return tmp_path


def pairs_of(**files: object) -> list[tuple[str, str]]:
    text = read_pairs(ParallelFiles.model_validate(files))
    return list(zip(text.src, text.tgt, strict=True))


def test_every_pair_with_text_is_in_one_part(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["split", "-i", "all.en", "all.de", "-o", "{}.en.gz", "{}.de.bz2", *SIZES]) == 0
    out, err = capsys.readouterr()
    assert err == "note: in no part: 1 pair with a blank side\n"
    assert [line.split() for line in out.splitlines()] == [
        ["part", "pairs", "files"],
        ["train", "169", "train.en.gz", "train.de.bz2"],
        ["valid", "20", "valid.en.gz", "valid.de.bz2"],
        ["test", "10", "test.en.gz", "test.de.bz2"],
    ]
    assert gzip.decompress((folder / "valid.en.gz").read_bytes()).count(b"\n") == 20
    assert bz2.decompress((folder / "valid.de.bz2").read_bytes()).count(b"\n") == 20
    parts = [
        pairs_of(src=f"{part}.en.gz", tgt=f"{part}.de.bz2") for part in ("train", "valid", "test")
    ]
    pairs_of_parts = sorted(pair for part in parts for pair in part)
    everything = [pair for pair in pairs_of(src="all.en", tgt="all.de") if pair[0].strip()]
    assert pairs_of_parts == sorted(everything)
    for part in parts:  # original order
        assert part == [pair for pair in everything if pair in set(part)]
    assert not {src for src, _ in parts[0]} & {src for part in parts[1:] for src, _ in part}


@pytest.mark.parametrize("name", ["{}.tsv", "{}.csv", "{}.jsonl.gz"])
def test_the_format_of_a_table_depends_on_its_suffix(folder: Path, name: str) -> None:
    words = ["split", "-i", "all.csv", "--columns", "german,english", "-o", name, *SIZES]
    assert main(words) == 0
    path = folder / name.replace("{}", "test")
    columns = None if ".tsv" in name else ["german", "english"]
    reverse = [pair[::-1] for pair in pairs_of(src="all.en", tgt="all.de")]
    pairs = pairs_of(file=path, columns=columns)
    assert len(pairs) == 10
    assert set(pairs) <= set(reverse)
    if "jsonl" in name:
        first = json.loads(gzip.decompress(path.read_bytes()).splitlines()[0])
        assert list(first) == ["german", "english"]


def test_a_name_may_begin_with_a_digit(folder: Path) -> None:
    lines = Path("all.csv").read_text(encoding="utf-8").partition("\n")[2]
    Path("all.csv").write_text(f"id,2016_en,2016_de\n{lines}", encoding="utf-8")
    columns = ["2016_de", "2016_en"]
    words = ["split", "-i", "all.csv", "--columns", ",".join(columns), "-o", "{}.csv", *SIZES]
    assert main(words) == 0
    assert len(pairs_of(file=folder / "test.csv", columns=columns)) == 10


def test_splits_depend_on_the_seed_and_the_test_set_is_optional(folder: Path) -> None:
    base = ["split", "-i", "all.en", "all.de", "--valid", "20", "--test", "0", "-o"]
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert main([*base, f"{name}-{{}}.tsv", "--seed", seed]) == 0
    valid = [(folder / f"{name}-valid.tsv").read_bytes() for name in "abc"]
    assert valid[0] == valid[1] != valid[2]
    assert not list(folder.glob("*-test.tsv"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-i all.en all.de -o a.en b.de", "split -o: each name needs {}, the place of train, "),
        ("-i all.en all.de -o {} {}", "-o: the files of source and target have the same name"),
        ("-i all.en all.de x -o {}", "split: give two files, source and target, or one with "),
        ("-i all.en all.de -o {}.en", "train.en: one file receives both sides as a table; end "),
        ("-i all.en all.de -o {}.a {}.b {}.c", "-o: give two files, source and target, or one "),
        ("-i all.en -o {}.tsv", "all.en:1: the line has 1 column"),
        ("-i all.en all.en -o {}.tsv", "split -i: src and tgt are the same file"),
        ("-i all.csv -o {}.tsv", "split: all.csv needs --columns SRC,TGT, the names of two "),
        ("-i all.csv --columns a -o {}.tsv", "split --columns: give two columns, source and "),
        ("-i all.csv --columns a,b -o {}.tsv", "all.csv:1: has no column 'a'; it has: id, "),
        (
            "-i all.en all.de -o {}.tsv --valid 500",
            "all.en and all.de: 199 pairs with text leave none",
        ),
        (
            "-i all.en all.de -o no/{}.tsv --valid 500",
            "all.en and all.de: 199 pairs with text leave none",
        ),
        ("-i all.en all.de -o all.en/{}.tsv", "all.en/train.tsv: "),
        ("-i nowhere all.de -o {}.tsv", "nowhere: no such file"),
        ("-i valid.en all.de -o {}.en {}.de", "valid.en: is already read or written by this "),
    ],
)
def test_invalid_arguments_are_refused_without_output(
    folder: Path, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names_before = {path.name for path in folder.iterdir()}
    assert main(["split", *words.split()]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"seq2seq: error: {message}")
    assert err.count("\n") == 1
    assert {path.name for path in folder.iterdir()} == names_before


def test_only_regular_files_are_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["split", "-i", "all.en", "all.de", *SIZES, "--overwrite", "-o"]
    os.mkfifo("pipe-valid.tsv")
    assert main([*words, "pipe-{}.tsv"]) == 2
    assert "pipe-valid.tsv: is not a regular file; choose" in capsys.readouterr().err
    assert Path("pipe-valid.tsv").is_fifo()
    Path("a-valid").symlink_to("target")
    Path("b-valid").symlink_to("target")
    assert main([*words, "a-{}", "b-{}"]) == 2
    assert "b-valid: is already read or written by this command" in capsys.readouterr().err
    assert main([*words, "a-{}", "c-{}"]) == 0
    assert Path("a-valid").is_symlink()
    assert (folder / "target").read_text(encoding="utf-8").count("\n") == 20


def test_a_twentieth_is_held_out_by_default_and_folders_are_made(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["split", "-i", "all.en", "all.de", "-o", "new/{}/x.en", "new/{}/x.de"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["train", "181"],
        ["valid", "9"],
        ["test", "9"],
    ]
    assert err.splitlines()[1:] == [
        "note: held out by default: a twentieth, at most 1,000 pairs; "
        "choose with --valid and --test"
    ]
    assert (folder / "new/test/x.de").read_text(encoding="utf-8").count("\n") == 9
    assert main(["split", "-i", "all.en", "all.de", "-o", "{}.tsv", "--valid", "90"]) == 0
    assert capsys.readouterr().err.splitlines()[1:] == [
        "note: held out by default: a twentieth, at most 1,000 pairs; choose with --test",
        "note: 50% of the pairs are left for train; hold out fewer",
    ]


def test_existing_files_are_replaced_only_on_request(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["split", "-i", "all.en", "all.de", "-o", "{}.tsv", *SIZES]
    (folder / "valid.tsv").write_text("mine")
    assert main(words) == 2
    assert "valid.tsv: exists; pass --overwrite to replace it" in capsys.readouterr().err
    assert (folder / "valid.tsv").read_text() == "mine"
    assert main([*words, "--overwrite"]) == 0
    assert (folder / "valid.tsv").read_text().count("\n") == 20


class Crash(BaseException):
    """The end of the process: nothing runs after it."""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("outputs", [("{}.en", "{}.de"), ("{}.tsv",)])
def test_a_crash_leaves_no_part_of_an_earlier_division(
    monkeypatch: pytest.MonkeyPatch, outputs: tuple[str, ...]
) -> None:
    words = ["split", "-i", "all.en", "all.de", "-o", *outputs, "--overwrite", *SIZES]
    names = [name.format(part) for part in ("train", "valid", "test") for name in outputs]

    def divided(seed: int) -> dict[str, bytes]:
        assert main([*words, "--seed", str(seed)]) == 0
        return {name: Path(name).read_bytes() for name in names}

    old = divided(1)
    new = divided(2)
    assert all(old[name] != new[name] for name in names)
    changes: list[str] = []
    for kind in ("unlink", "replace"):
        call = getattr(Path, kind)

        def counted(
            path: Path, *arguments: object, call: object = call, **options: object
        ) -> object:
            changed = str(arguments[0] if arguments else path)
            if Path(changed).name in names:
                if len(changes) == limit:
                    raise Crash
                changes.append(changed)
            return call(path, *arguments, **options)  # type: ignore[operator]

        monkeypatch.setattr(Path, kind, counted)
    for limit in range(2 * len(names)):
        for name in names:
            Path(name).write_bytes(old[name])
        changes.clear()
        with pytest.raises(Crash):
            main([*words, "--seed", "2"])
        left = {name: Path(name).read_bytes() for name in names if Path(name).exists()}
        assert left.items() <= old.items() or left.items() <= new.items()
        assert limit or left == old

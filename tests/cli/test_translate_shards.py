"""`translate --shard`: the outputs of all parts in order are that of the file."""

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cases.tiers import one_quick

from seq2seq.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
LINES = ["buda ki.", "more ta", "", "zu ba?", "ki more zu ba", "\ufeffta", "bu"]


@pytest.fixture
def run(tiny_runs: dict[str, Path]) -> Path:
    return tiny_runs["luong"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def translated(
    run: Path, source: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[str, str]:
    assert main(["translate", "-m", str(run), "-i", str(source), "-b", "2", *options]) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


@one_quick("shards", [1, 3, 9], quick=1)
@pytest.mark.parametrize("options", [(), ("--json",), ("--n-best", "2"), ("--batch-size", "2")])
def test_the_outputs_in_order_are_that_of_the_file(
    run: Path,
    source: Path,
    capsys: pytest.CaptureFixture[str],
    shards: int,
    options: tuple[str, ...],
) -> None:
    expected = translated(run, source, capsys, *options)[0]
    parts = [
        translated(run, source, capsys, *options, "--shard", f"{number}/{shards}")[0]
        for number in range(1, shards + 1)
    ]
    assert "".join(parts) == expected
    lengths = [len(part.splitlines()) for part in parts]
    assert max(lengths) - min(lengths) <= (2 if "--n-best" in options else 1)


def test_files_by_line_are_read_in_step(
    run: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefixes = tmp_path / "prefixes"
    packed = tmp_path / "text.gz"
    prefixes.write_text("ki\n\nta\nmore\n\nzu\nba\n")
    packed.write_bytes(gzip.compress(source.read_bytes()))
    options = ("--prefix-file", str(prefixes))
    expected = translated(run, source, capsys, *options)[0]
    for path in (source, packed):
        parts = [
            translated(run, path, capsys, *options, "--shard", f"{number}/3")
            for number in (1, 2, 3)
        ]
        assert "".join(out for out, _ in parts) == expected
        assert "without their prefix: 1 line (3)" in "".join(err for _, err in parts)


def test_notes_have_the_line_numbers_of_the_file(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"buda ki.\nmore ta\nzu \xff ba\nki\n")
    assert "in 1 line (3)" in translated(run, path, capsys, "--shard", "2/2")[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shard", "4/3", "-i", "TEXT"), "must be from 1/3 to 3/3, not 4/3"),
        (("--shard", "0/3", "-i", "TEXT"), "must be an integer of at least 1, not '0'"),
        (("--shard", "2", "-i", "TEXT"), "must be I/N, such as 1/8, not '2'"),
        (("--shard", "1/2", "ki"), "needs -i FILE, whose lines it counts first"),
        (("--shard", "1/2", "-i", "-"), "needs -i FILE, whose lines it counts first"),
        (("--shard", "1/2", "-i", "TEXT", "--stream"), "--shard cannot be used with --stream"),
    ],
)
def test_a_wrong_shard_is_refused_in_one_line(
    run: Path,
    source: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    message: str,
) -> None:
    arguments = [str(source) if option == "TEXT" else option for option in options]
    with pytest.raises(SystemExit) as caught:
        sys.exit(main(["translate", "-m", str(run), *arguments]))
    assert caught.value.code == 2
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 1
    assert message in err[0]


@pytest.mark.thorough
def test_the_documented_block_for_ray(
    run: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray.data", reason="needs Ray")
    page = (ROOT / "docs" / "how-to" / "large-corpus.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    code = code.replace("import ray\n", "import ray\nray.init(num_cpus=3)\n", 1)
    code = code.replace("runs/my-run", str(run)).replace("big.en", str(source))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert main(["translate", "-m", str(run), "-i", str(source)]) == 0
    assert (tmp_path / "big.de").read_text("utf-8") == capsys.readouterr().out

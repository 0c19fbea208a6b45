"""Descriptions of exports of strangers, made at random: refused in one line, or translated with.

A seed decides everything, so that a finding can be repeated.
"""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from seq2seq.__main__ import main
from seq2seq.runs.graphs import export_runs

DESCRIPTIONS = 1_000
MAX_PRINTED = 500  # characters of a line
LINES = "ba lo mi.\n\nzu ge ta\n"
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        "",
        "xx",
        "luong",
        "../export.json",
        "/etc/passwd",
        "\0",
        "\ud800",
        "\r\n",
    ),
    *([], {}, [[]], [None], {"": ""}, ["\u2028"] * 3, "ba " * 999, {"name": "x"}, [1, "2", 3.0]),
    *(0, 1, 2, -1, 0.5, 1e308, -1e308, float("inf"), float("nan"), 1 << 31, 1 << 63, 1 << 200),
)
SPOILED_TEXTS = 8  # one of so many descriptions is spoiled as text, too


def drawn(draw: random.Random, *others: Any) -> Any:
    """Return a value, a copy, which is spoiled later without the one that was drawn."""
    return copy.deepcopy(draw.choice((*VALUES, *others)))


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Return each container of a tree with each key or index of it."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    inner = [tree[key] for key in keys if isinstance(tree[key], dict | list)]
    return [*((tree, key) for key in keys), *(place for part in inner for place in places(part))]


def spoil(tree: Any, draw: random.Random) -> None:
    """Change, remove, add, exchange or repeat a value of a description."""
    container, key = draw.choice(places(tree))
    match draw.randrange(6):
        case 0 | 1:
            container[key] = drawn(draw)
        case 2:
            del container[key]
        case 3 if isinstance(container, dict):
            container[draw.choice(("other", "", "\u202e", "format"))] = drawn(draw)
        case 4:
            container[key] = drawn(draw, container[key])
            if isinstance(container, list):
                container.extend(container[: draw.randrange(4)])
        case _:
            other_container, other_key = draw.choice(places(tree))
            container[key] = copy.deepcopy(other_container[other_key])


def spoiled_text(description: str, draw: random.Random) -> bytes:
    """Return a description of which up to four values, or some bytes, are others."""
    tree = json.loads(description)
    for _ in range(draw.randrange(1, 5)):
        if tree:
            spoil(tree, draw)
    text = json.dumps(tree).encode()
    match draw.randrange(4 * SPOILED_TEXTS):
        case 0:
            return text[: draw.randrange(len(text))]
        case 1:
            place = draw.randrange(len(text))
            return text[:place] + bytes([draw.randrange(256)]) + text[place + 1 :]
        case 2:
            return b"[" * draw.randrange(1, 100_000)
        case 3:
            return text.decode().encode(draw.choice(("utf-16", "utf-8-sig", "utf-32")))
        case _:
            return text


@pytest.fixture
def export(tiny_runs: dict[str, Path], tmp_path: Path) -> Path:
    folder = tmp_path / "export"
    export_runs([tiny_runs["luong"]], folder)
    return folder


def run(export: Path, seeds: range, capsys: pytest.CaptureFixture[str]) -> dict[int, int]:
    """Translate with spoiled descriptions; return how often each exit code came."""
    description = export / "export.json"
    usual_description = description.read_text(encoding="utf-8")
    source = export.parent / "source"
    source.write_text(LINES, encoding="utf-8")
    codes = dict[int, int]()
    for seed in seeds:
        description.write_bytes(spoiled_text(usual_description, random.Random(seed)))
        code = main(["translate", "-m", str(export), "-i", str(source)])
        answer = capsys.readouterr()
        failures = [line for line in answer.err.split("\n") if line.startswith("seq2seq: error: ")]
        assert code in (0, 1, 2), seed
        assert len(failures) == (code != 0), (seed, answer.err)
        assert all(len(line) <= MAX_PRINTED for line in failures), (seed, failures)
        assert "Traceback" not in answer.err, (seed, answer.err)
        assert answer.out.count("\n") == (LINES.count("\n") if code == 0 else 0), seed
        codes[code] = codes.get(code, 0) + 1
    return codes


def test_the_first_descriptions_of_the_fuzzer(
    export: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A few in the quick tier, so that the fuzzer itself is tested."""
    assert len(run(export, range(20), capsys)) > 1


@pytest.mark.thorough
def test_descriptions_of_strangers_are_refused_in_a_line_or_used(
    export: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = run(export, range(DESCRIPTIONS), capsys)
    assert codes[0] > DESCRIPTIONS // 20, codes
    assert sum(codes.values()) - codes[0] > DESCRIPTIONS // 2, codes

"""Attention on the command line."""

import json
from pathlib import Path

import pytest
from cases.commands import Call, refused


@pytest.mark.parametrize(
    "suffix", ["json", "html", "svg", pytest.param("png", marks=pytest.mark.thorough)]
)
def test_attention_is_written(
    call: Call, tiny_runs: dict[str, Path], tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"plot.{suffix}"
    run = tiny_runs["bahdanau"]
    text = b"buda ki.\n\nzu\n"
    result = call("attention", "-m", run, "-o", out, "-b", 1, stdin=text)
    assert (result.code, result.out) == (0, b"")
    content = out.read_bytes()
    if suffix == "json":
        expected = call("translate", "-m", run, "--json", "-b", 1, stdin=text)
        assert json.loads(content) == [json.loads(line) for line in expected.lines]
    elif suffix == "png":
        assert content.startswith(b"\x89PNG\r\n")
    else:
        assert f"<{suffix}" in content.decode()
    assert [path.name for path in tmp_path.glob("plot*")] == [out.name]


def test_attention_takes_the_sentences_that_translate_takes(
    call: Call, tiny_runs: dict[str, Path]
) -> None:
    run = tiny_runs["luong"]
    maps = call("attention", "-m", run, stdin=b"zu ba\nko\n").out
    assert call("attention", "-m", run, "zu ba", "ko").out == maps
    refused(call("attention", "-m", run, "-i", "x", "zu"), "attention: TEXT", "with -i or -r")
    refused(call("attention", "-m", run, __file__), "is a file; did you mean -i ")


@pytest.mark.parametrize("suffix", ["json", "html", "png"])
def test_a_model_without_attention_cannot_be_plotted(
    call: Call, tiny_runs: dict[str, Path], tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"plot.{suffix}"
    result = call("attention", "-m", tiny_runs["none"], "-o", out, stdin=b"zu\n")
    refused(result, tiny_runs["none"], "no attention to plot")
    assert not out.exists()


def test_maps_beside_another_run(
    call: Call, luong: Path, tiny_runs: dict[str, Path], tmp_path: Path
) -> None:
    """One sentence, two models; the same run, another pair of languages and data are refused."""
    second_run = tiny_runs["bahdanau"]
    result = call("attention", "-m", luong, "--beside", second_run, "ba lo.")
    assert [line for line in result.lines if line in (str(luong), str(second_run))] == [
        str(luong),
        str(second_run),
    ]
    refused(call("attention", "-m", luong, "--beside", luong, "ba"), "is the run of -m")
    none = tiny_runs["none"]
    refused(
        call("attention", "-m", luong, "--beside", none, "ba"),
        f"{none}: the model has no attention",
    )
    for name in ("a.json", "a.align"):
        refused(
            call("attention", "-m", luong, "--beside", second_run, "ba", "-o", tmp_path / name),
            "write a file for each",
        )
    refused(
        call("attention", "-m", luong, "ba", "--percentages"), "--percentages: needs -o FILE.html"
    )
    (tmp_path / "gold").write_text("0-0\n" * 2)
    command = (
        "attention",
        "-m",
        luong,
        "ba",
        "-o",
        tmp_path / "a.align",
        "--gold",
        tmp_path / "gold",
    )
    refused(call(*command), "gold: has 2 lines, the text has 1; give a line of links for each")

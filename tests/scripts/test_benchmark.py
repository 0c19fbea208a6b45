"""Benchmark: FLOPs compared with torch's count, and parsing of other toolkits' output."""

import subprocess
from pathlib import Path

import pytest
import torch
from cases.tiers import one_quick
from torch.utils.flop_counter import FlopCounterMode

import measure_export
from benchmarking import peers, search_speed
from benchmarking.machine import matmul_gflops
from benchmarking.standard import CASES, Case, standard, work
from seq2seq.model.builder import build_model


@one_quick("case", CASES, ids=lambda case: case.name)
def test_the_counted_flops_equal_those_of_torch(case: Case) -> None:
    batch = 3
    sources = 5
    targets = 4
    config = standard(case, Path("data"), Path("run"), "float32")
    model = build_model(config.model, 8000, 8000, True).eval()
    src = torch.full((batch, sources), 7)
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        memory, state = model.start(model.encode(src, torch.full((batch,), sources)))
        for _ in range(targets):
            step = model.step(src[:, 0], state, memory)
            state = step.state
            model.project(step.outputs)
    cost = work(model)
    expected = batch * (
        sources * cost.src_token
        + targets * cost.tgt_token
        + sources * targets * cost.pair_of_tokens
    )
    once_a_sentence = 3 * 2 * batch * 256 * 512 if case.decoder == "bahdanau" else 0
    assert 3 * counter.get_total_flops() - once_a_sentence == pytest.approx(expected, rel=1e-6)


def test_the_peak_is_a_positive_rate() -> None:
    precision = torch.get_float32_matmul_precision()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("benchmarking.machine.SIZE", 128)
            assert matmul_gflops("float32", "cpu") > 0.1
    finally:
        torch.set_float32_matmul_precision(precision)


SCRIPT = """\
echo "# checkpoint 7"
if [ "$1" = train ]; then
  echo '{"figure": "x.train", "wall_s": 9.0, "peak_rss_mib": 1736}'
  echo "{\\"figure\\": \\"x.train_tgt_tok_s\\", \\"median\\": $4}"
else
  echo "{\\"figure\\": \\"x.beam$BEAMS.bs$SIZES.wall\\", \\"wall_s\\": 6.5}"
  echo '{"figure": "x.beam5.bs100", "bleu": 28.2}'
  echo "# x.beam5 Total translation time (s): 2.500000"
  echo "# x.beam5 Tokens per second: 2785.6"
fi
"""


def test_figures_of_another_toolkit_are_parsed(tmp_path: Path) -> None:
    (tmp_path / "run_x.sh").write_text(SCRIPT, encoding="utf-8")
    peer = peers.Peer("x", "run_x.sh", ("general", "0"), Case("luong"), "100")
    assert peers.train(peer, tmp_path, 650.0) == peers.PeerTraining(650.0, 1736.0)
    assert peers.search(peer, tmp_path, 5) == peers.PeerSearch(2.5, 2785.6, 6.5)


def test_a_missing_toolkit_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"printed no figure\. Is Joey NMT installed\?"):
        peers.train(peers.PEERS[0], tmp_path, 5.0)


def test_a_toolkit_that_timed_out_is_reported(tmp_path: Path) -> None:
    only_memory = "".join(line for line in SCRIPT.splitlines(True) if "median" not in line)
    (tmp_path / "run_joeynmt.sh").write_text(only_memory, encoding="utf-8")
    with pytest.raises(
        SystemExit, match=r"Joey NMT reported no speed in 5 seconds\. Raise --peer-seconds"
    ):
        peers.train(peers.PEERS[0], tmp_path, 5.0)


FAKE_PYTHON = """\
#!/bin/sh
cp "$3" "$(dirname "$0")/sources"
echo "{\\"tokens\\": 5.5, \\"median_ms\\": $5, \\"p95_ms\\": $6}"
[ "$4" = int8 ]
"""


def test_ctranslate2_gets_the_ids_and_its_figures_are_parsed(tmp_path: Path) -> None:
    python = tmp_path / "ct2" / "bin" / "python"
    with pytest.raises(SystemExit, match=r"does not exist\. Create it: python -m venv"):
        peers.search_ctranslate2(tmp_path, [[4, 5]], 5, 12, int8=True)
    python.parent.mkdir(parents=True)
    python.write_text(FAKE_PYTHON, encoding="utf-8")
    python.chmod(0o755)
    speed = peers.search_ctranslate2(tmp_path, [[4, 5], [6]], 5, 12, int8=True)
    assert speed == peers.RandomSearch(tokens=5.5, median_ms=5, p95_ms=12)
    assert (python.parent / "sources").read_text(encoding="utf-8") == "4 5\n6\n"
    with pytest.raises(subprocess.CalledProcessError):
        peers.search_ctranslate2(tmp_path, [[4, 5]], 5, 12, int8=False)


@pytest.mark.thorough
def test_search_and_precisions_are_measured(tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    run = tiny_runs["luong"]
    source = tmp_path / "source"
    lines = ["a b c"] * 60
    source.write_text("\n".join(lines), encoding="utf-8")
    for int8 in (False, True):
        assert search_speed.search_speed(run, source, 1, int8, "cpu").length > 0
    table = measure_export.searches(run, lines, lines)
    rows = [line.split()[:3] for line in table.splitlines()[2:]]
    assert [row[:2] for row in rows] == [[b, m] for b in "15" for m in ("torch", "float32", "int8")]
    assert {row[2] for row in rows if row[1] != "int8"} == {"100.00%"}

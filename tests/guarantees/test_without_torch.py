"""The runtime without torch, and the export command."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from cases.toy_text import toy_pairs

from seq2seq.__main__ import main
from seq2seq.inference.loaded_model import ModelOptions
from seq2seq.inference.translator import Translator
from seq2seq.runs.graphs import export_runs
from seq2seq.runtime.errors import TRAIN, UserError

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "export.md"
LINES = toy_pairs(12, seed=4)[0]
# Packages missing from an environment for exported models alone.
WITHOUT_TRAIN = f"""
import sys
from importlib.abc import MetaPathFinder
class Absent(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {(*TRAIN, "matplotlib")!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""
COMMAND_LINE = """
from seq2seq.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


# An installation of the package itself would add PyTorch with all of CUDA.
SMALL_PACKAGES = "pydantic pyyaml sacrebleu safetensors tabulate tqdm"


def without_train(
    *arguments: str, text: str = "", code: str = COMMAND_LINE, folder: Path = ROOT
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TRAIN + code, *arguments],
        input=text,
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture(scope="module")
def exported(tiny_runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "model"
    export_runs([tiny_runs["luong"]], folder)
    return folder


def test_the_command_writes_an_export_that_translate_accepts(
    tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tiny_runs["bahdanau"])
    for extra in ([], ["--int8"], ["-m", run]):
        folder = tmp_path / f"model{len(extra)}"
        assert main(["export", "-m", run, "-o", str(folder), *extra]) == 0
        out, err = capsys.readouterr()
        written = sorted(path.name for path in folder.iterdir())
        assert sorted(Path(line.split("  ")[0]).name for line in out.splitlines()) == written
        assert re.search(r"export\.json  [1-9]\d*\.\d kB\n", out)
        assert err == f"Translate:  seq2seq translate -m {folder} -i FILE\n"
        assert main(["translate", "-m", str(folder), LINES[0]]) == 0
        assert capsys.readouterr().out.strip()
    assert main(["export", "-m", run, "-o", str(tmp_path / "model0")]) == 2
    assert "exists and is not an empty folder; give another with -o" in capsys.readouterr().err


def test_translate_needs_no_torch(tiny_runs: dict[str, Path], exported: Path) -> None:
    run = Translator.load(tiny_runs["luong"], device="cpu")
    text = "".join(f"{line}\n" for line in LINES)
    process = without_train("translate", "-m", str(exported), text=text)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.splitlines() == [translation.text for translation in run.translate(LINES)]
    process = without_train("translate", "-m", str(exported), "--json", "--prefix", "ba", text=text)
    entries = [json.loads(line) for line in process.stdout.splitlines()]
    expected = run.translate(LINES, prefixes=["ba"] * len(LINES))
    for entry, theirs in zip(entries, expected, strict=True):
        assert entry["text"] == theirs.text
        np.testing.assert_allclose(entry["attention_weights"], theirs.attention, atol=2e-4)


def test_files_are_translated_without_torch(exported: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    output = tmp_path / "output"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    process = without_train("translate", "-m", str(exported), "-i", str(source), "-o", str(output))
    assert (process.returncode, process.stdout) == (0, "")
    expected = [translation.text for translation in Translator.load(exported).translate(LINES)]
    assert output.read_text(encoding="utf-8").splitlines() == expected
    graph = exported / "encoder.onnx"
    content = graph.read_bytes()
    process = without_train("translate", "-m", str(exported), "-o", str(graph), "ba")
    assert process.returncode == 2
    assert f"{graph}: is a file of the run {exported}; choose another name" in process.stderr
    assert graph.read_bytes() == content


@pytest.mark.parametrize(
    "arguments", [["train", "config.yaml"], ["check", "config.yaml"], ["evaluate", "-m", "RUN"]]
)
def test_other_commands_name_the_extra(tiny_runs: dict[str, Path], arguments: list[str]) -> None:
    arguments_of_run = [
        str(tiny_runs["luong"]) if argument == "RUN" else argument for argument in arguments
    ]
    process = without_train(*arguments_of_run)
    assert process.returncode == 2
    assert process.stdout == ""
    message = f"seq2seq: error: {arguments[0]} needs a package that is not installed ("
    assert process.stderr.startswith(message)
    assert process.stderr.endswith(f"). Run: pip install {SMALL_PACKAGES}\n")
    assert process.stderr.count("\n") == 1


FROM_PYTHON = """
import seq2seq
translator = seq2seq.Translator.load(sys.argv[1])
print(translator.translate(["ba", ""])[1].tokens)
print(translator.score("ba", "be").score)
for wanted in (lambda: seq2seq.train, lambda: seq2seq.Config):
    try:
        wanted()
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_python_names_the_extra(exported: Path) -> None:
    process = without_train(str(exported), code=FROM_PYTHON)
    assert process.stderr == ""
    tokens, score, train, config = process.stdout.splitlines()
    assert tokens == "[]"
    assert float(score) < 0
    for name, line in (("train", train), ("Config", config)):
        assert line.startswith(f"ModuleNotFoundError seq2seq.{name} needs a package that is ")
        assert line.endswith(f"Run: pip install {SMALL_PACKAGES}")


def test_a_run_folder_names_the_extra(tiny_runs: dict[str, Path]) -> None:
    run = tiny_runs["luong"]
    process = without_train("translate", "-m", str(run), "ba")
    assert process.returncode == 2
    assert f"{run}: has no export.json, and a run folder needs a package that" in process.stderr
    assert process.stderr.count("\n") == 1
    process = without_train("translate", "-m", str(run / "model"), "ba")
    assert (process.returncode, process.stderr) == (
        2,
        f"seq2seq: error: {run / 'model'}: no such folder; the package comes with -m en-fr\n",
    )


def test_the_demo_writes_nothing_if_it_cannot_train(tmp_path: Path) -> None:
    process = without_train("demo", folder=tmp_path)
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith("seq2seq: error: demo needs a package that is not installed (")
    assert not any(tmp_path.iterdir())


def test_a_server_accepts_an_exported_model(tiny_runs: dict[str, Path], exported: Path) -> None:
    from seq2seq.tools.serving.service import load_pairs

    pairs = load_pairs([str(exported)], ModelOptions(overrides=["decoding.beam_size=2"]))
    run = load_pairs(
        [str(tiny_runs["luong"])], ModelOptions("cpu", overrides=["decoding.beam_size=2"])
    )
    assert list(map(str, pairs)) == list(map(str, run)) == ["xx-yy"]
    texts, expected = (
        [translation.text for translation in next(iter(it.values())).translate(LINES)]
        for it in (pairs, run)
    )
    assert texts == expected
    with pytest.raises(UserError, match=r"translates xx to yy, as .* does"):
        load_pairs([str(exported), str(tiny_runs["luong"])], ModelOptions("cpu"))


def test_unsupported_options_of_an_export_are_refused_in_one_line(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "-m", str(exported)]) == 2
    assert "is an exported model, which records no text; give -i FILE and -r FILE" in (
        capsys.readouterr().err
    )
    assert main(["export", "-m", str(exported), "-o", str(tmp_path / "again")]) == 2
    assert "is an exported model, which translates only" in capsys.readouterr().err


def test_an_exported_model_has_the_scores_of_its_run(
    tiny_runs: dict[str, Path], exported: Path, tmp_path: Path
) -> None:
    for name in ("source", "reference"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    texts = ["-i", str(tmp_path / "source"), "-r", str(tmp_path / "reference")]
    scores = []
    for model in (tiny_runs["luong"], exported):
        path = tmp_path / "scores.json"
        assert main(["evaluate", "-m", str(model), *texts, "--json", str(path)]) == 0
        scores.append(json.loads(path.read_text("utf-8")))
    assert scores[0] == scores[1]
    assert scores[0]["bleu"]["signature"]


def code_block(language: str) -> str:
    """Return the page's only code block in a language."""
    _, block = PAGE.read_text(encoding="utf-8").split(f"```{language}\n")
    return block.partition("```")[0]


def greedy_ids(exported: Path, line: str) -> tuple[list[int], list[int]]:
    """Return source and target ids of a line, both without EOS."""
    translator = Translator.load(exported)
    (ids,) = translator.vocabularies.src.encode([line])
    tokens = translator.translate(line, beam_size=1).tokens[:-1]
    target = translator.vocabularies.tgt
    tokens_of_vocabulary = target.tokens(range(len(target)))
    return ids, [tokens_of_vocabulary.index(token) for token in tokens]


def test_the_calls_of_the_page_translate_in_python(exported: Path) -> None:
    """Run the algorithm of the page's JavaScript, with the names of its JSON file."""
    source, expected = greedy_ids(exported, LINES[0])
    description = json.loads((exported / "export.json").read_text(encoding="utf-8"))
    files = description["models"][0]
    encoder, decoder = (
        onnxruntime.InferenceSession(str(exported / files[name])) for name in ("encoder", "decoder")
    )
    ids = np.array([[*source, description["eos_id"]]])
    inputs = {"src": ids, "src_lengths": np.array([ids.shape[1]])}
    names = [value_info.name for value_info in encoder.get_outputs()]
    values = dict(zip(names, encoder.run(None, inputs), strict=True))
    token = description["bos_id"]
    found_ids = []
    limit = int(description["limit"]["ratio"] * len(source)) + description["limit"]["extra"]
    names = [value_info.name for value_info in decoder.get_outputs()]
    while len(found_ids) < limit:
        values["ids"] = np.array([token])
        decoder_inputs = {
            value_info.name: values[value_info.name] for value_info in decoder.get_inputs()
        }
        step = dict(zip(names, decoder.run(None, decoder_inputs), strict=True))
        log_probs = step["log_probs"][0]
        log_probs[[description["pad_id"], description["bos_id"], description["unk_id"]]] = -np.inf
        if not found_ids:
            log_probs[description["eos_id"]] = -np.inf
        if (token := int(log_probs.argmax())) == description["eos_id"]:
            break
        found_ids.append(token)
        values |= {
            name.removeprefix("next_"): value for name, value in step.items() if "next_" in name
        }
    assert found_ids == expected


def has_node() -> bool:
    node = shutil.which("node")
    call = [node or "", "-e", 'require("onnxruntime-node")']
    return (
        node is not None and subprocess.run(call, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not has_node(), reason="node does not find onnxruntime-node (NODE_PATH)")
def test_the_page_translates_in_javascript(exported: Path, tmp_path: Path) -> None:
    script = tmp_path / "translate.js"
    script.write_text(code_block("javascript"), encoding="utf-8")
    for line in LINES[:4]:
        source, expected = greedy_ids(exported, line)
        call = ["node", str(script), str(exported), *map(str, source)]
        process = subprocess.run(call, capture_output=True, check=True, encoding="utf-8")
        assert list(map(int, process.stdout.split())) == expected

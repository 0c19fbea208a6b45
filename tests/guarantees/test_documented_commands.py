"""Commands of README, documentation and configs are valid; those of the guides are run."""

import itertools
import os
import re
import shlex
import shutil
import string
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from cases.environment import project_environment

from seq2seq.__main__ import GROUPS, main
from seq2seq.cli.parser import parse
from seq2seq.config.schema import load_config
from seq2seq.data.public_corpora import unpack_demo_corpora
from seq2seq.runtime.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")),
]
SHELL = {
    "cat",
    "cd",
    "cp",
    "curl",
    "docker",
    "cut",
    "echo",
    "head",
    "export",
    "git",
    "gzip",
    "mkdir",
    "source",
    "tail",
    "wait",
}
# Pages whose commands run here, one after the other. Those of other pages need hours or a network:
# they are commands of scripts, or tests/config/test_config_schema.py loads their configs.
GUIDES = [
    "README.md",
    *(f"docs/how-to/{name}.md" for name in ("own-corpus", "train", "fine-tune", "translate")),
    *(f"docs/how-to/{name}.md" for name in ("evaluate", "compare", "deploy", "export", "cite")),
    "docs/how-to/several-processes.md",
    "docs/explanation/exact-resume.md",
]
NEEDS = {  # needs more than a computer without a network
    "seq2seq init": "the measured speed of a full-size model: tests/tools/commands/test_init.py",
    "seq2seq distill-train": "six trainings: tests/tools/commands/test_distill_train.py",
    "seq2seq demo": "two minutes: tests/cli/test_demo.py",
    "runs/demo": "the demo's run",
    "configs/": "the corpora of a clone, or hours",
    "download": "a network",
    "pip install": "a network",
    "make demo": "a network, to install everything",
    "make test": "minutes: this is one of its tests",
    "source .venv": "an environment of its own",
    "measure_export": "a network and half an hour",
    "--nnodes 2": "two machines",
    "seq2seq serve": "runs until a signal: tests/tools/commands/test_serve.py",
    "curl": "a server; tests/guarantees/test_documented_calls.py",
    "docker": "containers; tests/guarantees/test_container.py",
}


class Line(NamedTuple):
    """A line of a code block of commands, with its page."""

    page: str
    number: int
    text: str


def blocks(page: str) -> Iterator[tuple[int, str, str]]:
    """Yield first line number, language and text of each code block of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for fence in re.finditer(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield text[: fence.start()].count("\n") + 2, fence[1], fence[2]
    unfenced = re.sub(r"^```.*?^```", lambda it: "\n" * it[0].count("\n"), text, flags=re.M | re.S)
    for block in re.finditer(r"(?<=\n\n)((?: {4}.*\S.*\n)+)", unfenced):
        yield unfenced[: block.start()].count("\n") + 1, "bash", textwrap.dedent(block[1])


def command_lines(page: str) -> list[Line]:
    """List the commands of a page; a backslash at the end of a line continues it."""
    command_lines_of_page = []
    for first, language, text in blocks(page):
        if language != "bash":
            continue
        lines = enumerate(text.splitlines(), start=first)
        for number, line in lines:
            while line.endswith("\\"):
                line = line[:-1] + next(lines)[1]
            if line.strip() and not line.lstrip().startswith("#"):
                command_lines_of_page.append(Line(page, number, line.strip()))
    return command_lines_of_page


def programs(line: str) -> Iterator[list[str]]:
    """Yield the words of each program that a shell line calls."""
    lexer = shlex.shlex(line.replace("$n", "1"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    tokens = iter([*lexer, ";"])
    for token in tokens:
        if token in ("<", ">", ">>"):
            next(tokens)
        elif set(token) <= set("();<>|&"):
            while words and (words[0] == "do" or re.match(r"\w+=", words[0])):
                words = words[1:]
            if words and words[0] not in ("for", "done"):
                yield words
            words = []
        elif not (token == "2" and line.partition(token)[2].startswith(">")):
            words.append(token)


def header_lines(config: str) -> list[Line]:
    """List the commands in the first comment of a config, with loops and variables expanded."""
    lines_of_headers = []
    variables = {}
    text = (ROOT / config).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("#"):
            break
        if not line.startswith("#   ") or line.startswith("#   the commands of "):
            continue
        command = line.removeprefix("#   ")
        values = [""]
        if loop := re.match(r"for (\w+) in (.*?); do (.*); done$", command):
            name = loop[1]
            values = loop[2].split()
            command = loop[3]
            variables[name] = ""
        elif re.fullmatch(r"(\w+=('[^']*'|\S+)\s*)+", command):
            variables |= {k: v.strip("'") for k, v in re.findall(r"(\w+)=('[^']*'|\S+)", command)}
            continue
        for value in values:
            known_variables = {**variables, name: value} if value else variables
            lines_of_headers.append(
                Line(config, number, string.Template(command).substitute(known_variables))
            )
    return lines_of_headers


CONFIGS = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("configs/*.yaml"))
HEADERS = [line for config in CONFIGS for line in header_lines(config)]
LINES = [line for page in PAGES for line in command_lines(page)] + HEADERS


def test_the_pages_have_commands() -> None:
    assert len(LINES) > 60
    assert {line.page for line in LINES} >= set(GUIDES)


def test_the_header_of_a_config_has_the_command_that_uses_it() -> None:
    used_configs = {line.page for line in HEADERS if " configs/" in line.text}
    assert sorted(set(CONFIGS) - used_configs) == []


def test_every_command_is_well_formed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    malformed = []
    for line in LINES:
        try:
            for words in programs(line.text):
                check_program(words)
        except (AssertionError, UserError, SystemExit, SyntaxError) as error:
            place = f"{line.page}:{line.number}"
            printed = capsys.readouterr().err
            malformed.append(f"{place}: {line.text}: {error} {printed}")
    assert not malformed, "\n".join(malformed)


def check_program(words: list[str]) -> None:
    match words:
        case ["seq2seq", *arguments]:
            check_seq2seq(arguments)
        case ["torchrun", *later_words] if "seq2seq" in later_words:
            check_seq2seq(later_words[later_words.index("seq2seq") + 1 :])
        case ["python", "-c", code]:
            compile(code, "page", "exec")
        case ["python", "-m", "pytest", *later_words]:
            assert all((ROOT / script).exists() for script in later_words if script.endswith(".py"))
        case ["python", script, *later_words]:
            assert (ROOT / script).is_file(), f"{script}: no such script"
            source = (ROOT / script).read_text(encoding="utf-8")
            assert [
                word for word in later_words if word.startswith("--") and word not in source
            ] == []
            assert [
                e for e in later_words if e.startswith("configs/") and not (ROOT / e).is_file()
            ] == []
        case ["make", target, *_]:
            assert f"\n{target}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
        case ["pip", "install", *later_words]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
            extras = re.findall(r"\[(.*)\]", " ".join(later_words))
            assert set(",".join(extras).split(",")) <= {
                "",
                *project["project"]["optional-dependencies"],
            }
        case [program, *_]:
            assert program in SHELL


def check_seq2seq(arguments: list[str]) -> None:
    """Parse a command; load its configs, if they are shipped, with its overrides."""
    if arguments[0].startswith("--"):
        assert arguments == ["--version"]
        return
    options = parse([argument for argument in arguments if argument != "--help"], GROUPS).options
    configs = [config for config in arguments if config.startswith("configs/")]
    assert [config for config in configs if not (ROOT / config).is_file()] == []
    if arguments[0] in ("train", "check") and configs:
        load_config(Path(configs[0]), options.overrides)


# ------------------------------------------------------------------------------ running the guides

CONFIG = """\
name: my-run
run_dir: runs/my-run
data:
  src_lang: en
  tgt_lang: de
  train: {src: train.en, tgt: train.de}
  valid: {src: valid.en, tgt: valid.de}
  test: {src: test.en, tgt: test.de}
  max_length: 40
vocabulary: {type: bpe, size: 400}
model: {embedding_size: 16, hidden_size: 16}
training: {max_steps: 4, batch_tokens: 300, validate_every: 2, keep: 2, precision: float32}
decoding: {max_length: 8}
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all files that the guides mention, and a run."""
    folder = tmp_path_factory.mktemp("guides")
    unpack_demo_corpora(folder / "corpora")
    texts = {}
    for language, side in (("en", "en"), ("de", "fr")):
        path = folder / f"corpora/demo/train.{side}"
        texts[language] = path.read_text(encoding="utf-8").splitlines()[:2200]
    parts = {"all": (0, 2200), "train": (0, 150), "valid": (150, 162), "test": (180, 210)}
    for part, (start, stop) in parts.items():
        for language, lines in texts.items():
            lines_of_part = "".join(f"{line}\n" for line in lines[start:stop])
            (folder / f"{part}.{language}").write_text(lines_of_part, encoding="utf-8")
    pairs = "".join(f"{a}\t{b}\n" for a, b in zip(texts["en"], texts["de"], strict=True))
    (folder / "all.tsv").write_text(pairs, encoding="utf-8")
    subprocess.run(["gzip", "-k", "all.tsv"], cwd=folder, check=True)
    for name, separator in (("test.tsv", "\t"), ("test.csv", ";")):
        columns = (["english", *texts["en"][180:210]], ["german", *texts["de"][180:210]])
        rows = zip(*columns, strict=True)
        (folder / name).write_text("".join(f"{separator.join(row)}\n" for row in rows), "utf-8")
    for name, lines in {
        "new.en": texts["en"][:3],
        "log.en": texts["en"][:2],
        "a.de": texts["de"][180:210],
        "b.de": texts["de"][150:180],
        "c.de": texts["de"][120:150],
        "film.srt": ["1", "00:00:01,000 --> 00:00:02,000", texts["en"][0]],
        "page.html": [f"<p>{texts['en'][1]}</p>"],
    }.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for name in ("my-run", "other", "a", "b"):
        text = CONFIG.replace("my-run", name)
        text = text.replace("16}", "16, decoder: luong}") if name == "b" else text
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "my-run.yaml"]) == 0
    for copy in ("a", "b"):
        shutil.copytree(folder / "runs/my-run", folder / "runs" / copy)
    return folder


@pytest.fixture
def workplace(
    prepared: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return a copy of the prepared folder as working directory; guides that train have no run."""
    shutil.copytree(prepared, tmp_path / "work", ignore=shutil.ignore_patterns("corpora"))
    page = request.node.callspec.params["page"]
    if any("seq2seq train my-run.yaml" in line.text for line in command_lines(page)):
        shutil.rmtree(tmp_path / "work/runs/my-run")
    if page in ("docs/how-to/evaluate.md", "docs/how-to/translate.md"):
        shutil.copytree(tmp_path / "work/runs/my-run", tmp_path / "work/runs/my-run-luong")
    if page == "docs/how-to/deploy.md":
        run = tmp_path / "work/runs/my-run"
        exported = tmp_path / "work/exported"
        assert main(["export", "-m", str(run), "-o", str(exported)]) == 0
    if page == "README.md":
        config = CONFIG.replace(": train.", ": data/train.").replace(": valid.", ": data/valid.")
        config = config.replace(": test.", ": data/test.")
        (tmp_path / "work/my-run.yaml").write_text(config, encoding="utf-8")
        for path in (tmp_path / "work").glob("all.??"):
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            path.write_text("".join(lines[:500]), encoding="utf-8")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr("seq2seq.evaluation.bootstrap.RESAMPLES", 40)
    return tmp_path / "work"


@pytest.mark.thorough
@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("page", GUIDES)
def test_the_commands_of_a_guide_run(
    page: str, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [line for line in command_lines(page) if not any(need in line.text for need in NEEDS)]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("PYTHONPATH", project_environment()["PYTHONPATH"])
    assert lines
    for line in lines:
        words = list(programs(line.text))
        if re.fullmatch(r"seq2seq [^|<>;]*", line.text.partition(" #")[0]):
            if "--help" not in words[0] and "--version" not in words[0]:
                assert main(words[0][1:]) == 0, line
            continue
        command = line.text.replace("tail -f", "cat").replace("scripts/", f"{ROOT}/scripts/")
        process = subprocess.run(
            ["bash", "-c", command], cwd=workplace, capture_output=True, text=True
        )
        assert process.returncode == 0, f"{line}\n{process.stderr}"


@pytest.mark.thorough
@pytest.mark.parametrize("page", ["README.md", "docs/how-to/python.md"])
def test_the_python_of_a_guide_runs(page: str, workplace: Path) -> None:
    if page == "README.md":
        assert main(["train", str(workplace / "other.yaml"), "run_dir=runs/my-run"]) == 0
    codes = [text for _, language, text in blocks(page) if language == "python"]
    assert codes
    for code in codes:
        exec(compile(code, page, "exec"), {})


@pytest.mark.thorough
def test_every_file_of_a_run_folder_is_documented(prepared: Path) -> None:
    page = (ROOT / "docs/reference/run-folder.md").read_text(encoding="utf-8")
    names = ["tensorboard", *(path.name for path in (prepared / "runs/my-run").iterdir())]
    assert len(names) > 8
    kinds = {re.sub(r"step-\d+", "step-N", name) for name in names}
    assert [kind for kind in sorted(kinds) if kind not in page] == []


def test_the_yaml_of_a_page_is_yaml() -> None:
    for page in PAGES:
        for number, language, text in blocks(page):
            if language == "yaml":
                is_comment = all(line.startswith("#") for line in text.splitlines())
                assert yaml.safe_load(text) or is_comment, f"{page}:{number}"


def test_pipes_and_loops_are_split_into_programs() -> None:
    line = "for n in 1 2; do A=1 gzip -dc a | cut -f $n > dev.$n; done  # why"
    assert list(programs(line)) == [["gzip", "-dc", "a"], ["cut", "-f", "1"]]
    assert list(itertools.chain(*programs('seq2seq x "a # b" -o c'))) == [
        *("seq2seq", "x", "a # b", "-o", "c")
    ]

"""Scores of strangers: a config or a run folder alone imports nothing and calls nothing."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import LazyLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from cases.tiny_runs import create_tiny_run
from cases.toy_text import toy_pairs
from torch import nn

from seq2seq.__main__ import GROUPS, main
from seq2seq.cli.parser import command_module, commands_of
from seq2seq.config.schema import Config, load_config
from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.inference.translator import Translator
from seq2seq.model.external_score import UntrustedScore, external_score
from seq2seq.model.seq2seq import named_weights
from seq2seq.model.trusted_scores import VARIABLE, trusted_scores
from seq2seq.runs.checkpoint import (
    create_run,
    new_model,
    save_weights,
    update_config,
    weights_header,
)
from seq2seq.runs.layout import BEST, ENGINE
from seq2seq.runs.run_config import provenance_of
from seq2seq.runtime.errors import UserError
from seq2seq.training.trained_run import train

COMMANDS = commands_of(GROUPS)
pytestmark = pytest.mark.usefixtures("short_sentences")

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/how-to/own-score.md"
REFUSAL = "is code outside of seq2seq, which a config or a run folder alone does not run; if you"


def strangers_run(config: Config, vocabularies: Vocabularies) -> Path:
    """Write a run whose config and weights name a score, which nothing imports; no `engine`."""
    tree = config.model_dump(mode="json", exclude_unset=True)
    tree["model"]["score"] = "additive"
    run = config.run_dir
    create_run(run, config, vocabularies)
    origin = provenance_of(config, vocabularies, model_keys_only=True)
    for step in (3, 4):
        weights = named_weights(new_model(Config.model_validate(tree), vocabularies))
        header = weights_header(LengthLimit(0.75, 3), step, 1.25, origin)
        save_weights(run / f"step-{step}.safetensors", weights, header)
    shutil.copy(run / "step-4.safetensors", run / BEST)
    return run


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a module on the path and into the current folder; return the file that it writes."""
    folder = tmp_path / "modules"
    trace = tmp_path / "evil ran"
    folder.mkdir()
    code = f"open({str(trace)!r}, 'w').close()\nclass X: pass\n"
    (folder / "evil.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(folder)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    return trace


class Recorder:
    """Objects of an imported module, of which a stranger may name any, and what was called."""

    def __init__(self) -> None:
        self.calls = calls = list[str]()

        class Proxy:
            @property
            def __class__(self) -> type:  # type: ignore[override]
                calls.append("__class__")
                return type

            def __getattr__(self, name: str) -> None:
                calls.append(name)
                raise AttributeError(name)

            def __call__(self, *_sizes: int) -> None:
                calls.append("proxy")

        class Plain:
            def __init__(self, *_sizes: int) -> None:
                calls.append("plain")

        class Layer(nn.Module):
            def __init__(self, *_sizes: int) -> None:
                calls.append("layer")
                super().__init__()

        class Projecting(Layer):
            def project(self) -> None: ...

        self.module = ModuleType("recorder")
        self.module.__dict__.update(
            proxy=Proxy(),
            Plain=Plain,
            Layer=Layer,
            Projecting=Projecting,
            function=lambda *_sizes: calls.append("function"),
            number=3,
            nothing=None,
            __getattr__=calls.append,
        )


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    watched = Recorder()
    monkeypatch.setitem(sys.modules, "recorder", watched.module)
    return watched


NAMES = ("proxy", "Plain", "Layer", "Projecting", "function", "number", "nothing", "absent")
NOT_IMPORTED = ("evil:X", "this:s", "antigravity:geohash", "evil.part:X", "idlelib.idle:X")
HOSTILE = (
    *(f"recorder:{name}" for name in NAMES),
    *NOT_IMPORTED,
    "ctypes:memset",
    "builtins:print",
    "builtins:__import__",
    "os:setresuid",
    "sys:exit",
    "torch.nn:Linear",
    "torch.nn:Transformer",
    "torch:load",
    "seq2seq.model.encoder:Encoder",
    "seq2seq.model.trusted_scores:nothing",
    "__main__:nothing",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_stranger_names_is_neither_imported_nor_called(
    name: str, evil: Path, recorder: Recorder
) -> None:
    modules_before = set(sys.modules)
    with pytest.raises(UntrustedScore, match=f"^{name} is code outside of seq2seq, which a "):
        external_score(name, 6, 8, 4)
    assert set(sys.modules) == modules_before
    assert recorder.calls == []
    assert not evil.exists()


def test_a_lazy_module_is_not_loaded(evil: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.find_spec("evil")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "evil", module)
    spec.loader.exec_module(module)
    with pytest.raises(UntrustedScore):
        external_score("evil:X", 6, 8, 4)
    assert not evil.exists()
    assert module.X  # loads it
    assert evil.exists()


def test_no_class_of_torch_is_taken_for_a_score() -> None:
    """Every class that a stranger can call is one of the scores of the package."""
    accepted_kinds = set()
    for module, loaded in list(sys.modules.items()):
        if not module.startswith(("torch", "seq2seq")) or type(loaded) is not ModuleType:
            continue
        for name, kind in list(vars(loaded).items()):
            if issubclass(type(kind), type) and issubclass(kind, nn.Module):
                try:
                    external_score(f"{module}:{name}", 6, 8, 4)
                except UntrustedScore:
                    continue
                except ValueError:
                    pass
                accepted_kinds.add(kind)
    assert len(accepted_kinds) > 5
    assert {kind.__module__ for kind in accepted_kinds} == {"seq2seq.model.attention"}


COMMAND_LINES = {
    "train": "train CONFIG run_dir=NEW",
    "resume": "train CONFIG run_dir=NEW --resume",
    "init-from": "train CONFIG run_dir=NEW model.score=additive --init-from RUN",
    "check": "check CONFIG run_dir=NEW",
    "compare": "compare CONFIG -o NEW --seeds 1",
    "distill-train": "distill-train CONFIG run_dir=NEW",
    "average": "average RUN -o NEW",
    "distill": "distill -m RUN -o NEW.tsv",
    "back-translate": "back-translate -m RUN -i TEXT.src -o NEW.tsv",
    "translate": "translate -m RUN ba",
    "ensemble": "translate -m RUN -m RUN ba",
    "evaluate": "evaluate -m RUN",
    "score": "score -m RUN -i TEXT.src -r TEXT.tgt",
    "attention": "attention -m RUN ba",
    "serve": "serve -m RUN --port 0",
    "export": "export -m RUN -o NEW",
}


def words_of(command: str, config: Path, run: Path, new: Path) -> list[str]:
    places = {"CONFIG": config, "RUN": run, "NEW": new, "TEXT": config.parent / "test"}
    for name, path in places.items():
        command = command.replace(name, str(path))
    return command.split()


@pytest.mark.usefixtures("recorder")
@pytest.mark.parametrize("command", COMMAND_LINES)
def test_every_command_refuses_a_score_that_only_a_file_names(
    command: str,
    evil: Path,
    small_corpus: Path,
    tiny_vocabularies: Vocabularies,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The line names the option by which the user may trust it."""
    monkeypatch.chdir(small_corpus.parent)  # files from elsewhere are named, too
    if command == "serve":
        pytest.importorskip("fastapi")
    text = small_corpus.read_text(encoding="utf-8")
    for name in ("evil:X", "recorder:function"):
        config_text = text.replace("decoder: bahdanau", f"decoder: bahdanau, score: '{name}'")
        small_corpus.write_text(config_text, encoding="utf-8")
        overrides = [f"run_dir={tmp_path / name.partition(':')[0]}"]
        run = strangers_run(load_config(small_corpus, overrides), tiny_vocabularies)
        capsys.readouterr()
        words = words_of(COMMAND_LINES[command], small_corpus, run, tmp_path / "new")
        assert main(words) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("seq2seq: error: ")
        assert f"model.score: {name} {REFUSAL} trust it, add --score {name}" in printed.err
        assert printed.err.count("\n") == 1
        assert not (tmp_path / "new").exists()
        assert not evil.exists()
        assert "evil" not in sys.modules


def test_a_report_without_its_score_has_no_translations(
    evil: Path,
    small_corpus: Path,
    tiny_vocabularies: Vocabularies,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = strangers_run(load_config(small_corpus, ["model.score=evil:X"]), tiny_vocabularies)
    assert main(["report", str(run)]) == 0
    note = f"note: no scores: model.score: evil:X {REFUSAL} trust it, add --score evil:X\n"
    assert note in capsys.readouterr().err
    assert not evil.exists()


def test_a_score_that_the_weights_alone_name_is_not_imported(
    evil: Path,
    small_corpus: Path,
    tiny_vocabularies: Vocabularies,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = strangers_run(load_config(small_corpus, ["model.score=evil:X"]), tiny_vocabularies)
    update_config(run, load_config(small_corpus))
    assert main(["translate", "-m", str(run), "ba"]) == 2
    assert "trained with other values: model.score.name: evil:X -> " in capsys.readouterr().err
    assert not evil.exists()


def test_every_command_that_takes_a_model_has_the_option() -> None:
    """Others make no model: they read figures, or translations that exist."""
    from seq2seq.cli.parser import Parser, parse

    without = {
        "completion",
        "configs",
        "demo",
        "download",
        "explain",
        "init",
        "runs",
        "schema",
        "split",
    }
    for command in COMMANDS.keys() - without:
        parser = Parser(prog=command)
        command_module(command, COMMANDS[command][0]).add_arguments(parser)
        assert "--score" in parser._option_string_actions, command
    call = parse(["check", "c.yaml", "--score", "a:B", "--score", "c.d:E"], GROUPS)
    assert call.options.scores == call.scores == ["a:B", "c.d:E"]


@pytest.mark.parametrize("text", ["Cosine", "my_scores", "my_scores:", "a/b:C", "a:b:c", ""])
def test_a_malformed_name_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "c.yaml", "--score", text]) == 2
    error = capsys.readouterr().err
    assert "--score: must have the form package.module:Class, such as my_scores:Cosine" in error


def test_python_names_the_argument(
    evil: Path, small_corpus: Path, tiny_vocabularies: Vocabularies
) -> None:
    """Overrides of `load_config` may come from a file, too."""
    config = load_config(small_corpus, ["model.score=evil:X"])
    message = rf"^model\.score: evil:X {REFUSAL} trust it, add scores=\['evil:X'\]$"
    with pytest.raises(UserError, match=message):
        train(config, "cpu", quiet=True)
    run = strangers_run(config, tiny_vocabularies)
    with pytest.raises(UserError, match=message):
        Translator.load(run, device="cpu")
    assert not evil.exists()
    with pytest.raises(UserError, match=r"^model\.score: evil:X must be a torch\.nn\.Module with"):
        Translator.load(run, device="cpu", scores=["evil:X"])  # imported, and not called
    assert evil.exists()


@pytest.mark.parametrize("scores", ["my_scores:Cosine", nn.Linear, [3], ["Cosine"], [None]])
def test_scores_of_other_types_are_refused(scores: Any, small_corpus: Path) -> None:
    with pytest.raises(TypeError, match=r"^scores: must be "):
        train(load_config(small_corpus), "cpu", quiet=True, scores=scores)


@pytest.mark.parametrize(
    "override", ["model.score=evil:X", "model.score={name: evil:X}", "model.score.name=evil:X"]
)
def test_an_override_names_a_score(
    override: str, evil: Path, small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(small_corpus), override]) == 2
    assert "evil:X must be a torch.nn.Module" in capsys.readouterr().err
    assert evil.exists()


def test_an_override_of_another_key_names_no_score(evil: Path, small_corpus: Path) -> None:
    text = small_corpus.read_text(encoding="utf-8").replace("{decoder", "{score: 'evil:X', decoder")
    small_corpus.write_text(text, encoding="utf-8")
    assert main(["check", str(small_corpus), "name=evil:X"]) == 2
    assert not evil.exists()


def test_trust_ends_with_the_call(evil: Path) -> None:
    with trusted_scores(["evil:X"]):
        pass
    with pytest.raises(UntrustedScore):
        external_score("evil:X", 6, 8, 4)
    assert not evil.exists()


# -------------------------------------------------------------------------- processes in a folder


@pytest.fixture
def folder(evil: Path, small_corpus: Path, tiny_vocabularies: Vocabularies) -> Path:
    """Return a stranger's run with the module beside its config."""
    text = small_corpus.read_text(encoding="utf-8").replace("{decoder", "{score: 'evil:X', decoder")
    small_corpus.write_text(text, encoding="utf-8")
    run = strangers_run(load_config(small_corpus), tiny_vocabularies)
    shutil.copy(evil.parent / "modules/evil.py", run)
    return run


IN_THE_FOLDER = {
    "command": ([str(Path(sys.executable).parent / "seq2seq"), "translate", "-m", ".", "ba"], None),
    "empty entry": (
        [str(Path(sys.executable).parent / "seq2seq"), "translate", "-m", ".", "ba"],
        f"{ROOT}{os.pathsep}",
    ),
    "module": ([sys.executable, "-m", "seq2seq", "translate", "-m", ".", "ba"], str(ROOT)),
    "Python": (
        [sys.executable, "-c", "import seq2seq; seq2seq.Translator.load('.', device='cpu')"],
        str(ROOT),
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("start", IN_THE_FOLDER)
def test_code_that_lies_in_the_folder_does_not_run(start: str, folder: Path, evil: Path) -> None:
    command, path = IN_THE_FOLDER[start]
    if not Path(command[0]).exists():
        pytest.skip("the command is not installed")
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = path
    options: dict[str, Any] = {"cwd": folder, "env": environment, "encoding": "utf-8"}
    ended = subprocess.run(command, capture_output=True, check=False, **options)
    assert ended.returncode == (1 if start == "Python" else 2), ended.stderr
    assert f"model.score: evil:X {REFUSAL} trust it, add " in ended.stderr
    assert not evil.exists()


# ---------------------------------------------------------------------------- a score of one's own


@pytest.fixture
def import_own_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Install the module of the page; return a function that forgets that it was imported."""
    folder = tmp_path / "own"
    folder.mkdir()
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (folder / "my_scores.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delenv(VARIABLE, raising=False)

    def forget() -> None:
        sys.modules.pop("my_scores", None)

    monkeypatch.delitem(sys.modules, "my_scores", raising=False)
    return forget


def called(*words: str | Path) -> int:
    return main([str(word) for word in words])


@pytest.mark.usefixtures("few_steps")
def test_ones_own_score_is_trained_in_one_line_and_translates_by_the_printed_one(
    import_own_score: Callable[[], None], small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_corpus.parent / "run"
    override = "model.score=my_scores:Cosine"
    assert called("train", small_corpus, override, "training.max_steps=2") == 0
    printed = re.search(r"Translate:  seq2seq (translate .*) -i FILE( .*)", capsys.readouterr().err)
    assert printed is not None
    import_own_score()
    shutil.rmtree(run / ENGINE)
    assert called(*printed[1].split(), "ba") == 2
    assert f"if you trust it, add{printed[2]}" in capsys.readouterr().err.replace("\n", "")
    assert called(*printed[1].split(), "ba", *printed[2].split()) == 0
    import_own_score()
    assert called(*printed[1].split(), "ba") == 0  # by the graphs, which the last call made


def file_with_the_score(config: Path) -> None:
    text = config.read_text(encoding="utf-8")
    config_text = text.replace("decoder: bahdanau", "decoder: bahdanau, score: 'my_scores:Cosine'")
    config.write_text(config_text, encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.usefixtures("few_steps")
def test_all_commands_work_with_a_score_that_the_user_names(
    import_own_score: Callable[[], None], small_corpus: Path
) -> None:
    file_with_the_score(small_corpus)
    here = small_corpus.parent
    run = small_corpus.parent / "run"
    keys = ["training.keep=2", "training.save_every=1"]
    for words in (
        ["check", small_corpus, *keys],
        ["train", small_corpus, *keys, "training.max_epochs=1"],
        ["train", small_corpus, *keys, "--resume"],
        ["average", run, "-o", here / "averaged"],
        ["average", run, "-o", here / "averaged", "--overwrite"],
        ["translate", "-m", run, "ba"],
        ["translate", "-m", run, "-m", here / "averaged", "ba"],
        ["evaluate", "-m", run],
        ["score", "-m", run, "-i", here / "test.src", "-r", here / "test.tgt"],
        ["attention", "-m", run, "ba"],
        ["report", run],
        ["distill", "-m", run, "-o", here / "distilled.tsv"],
        ["back-translate", "-m", run, "-i", here / "test.src", "-o", here / "back.tsv"],
        ["export", "-m", run, "-o", here / "exported"],
        ["train", small_corpus, "run_dir=" + str(here / "warm"), "--init-from", run],
        ["compare", small_corpus, "--seeds", "1", "-o", here / "compared"],
    ):
        import_own_score()
        for folder in (run, here / "averaged"):
            shutil.rmtree(folder / ENGINE, ignore_errors=True)
        assert called(*words, "--score", "my_scores:Cosine") == 0, words


@pytest.mark.thorough
@pytest.mark.usefixtures("few_steps")
def test_python_trains_and_loads_a_score_by_name_or_class(
    import_own_score: Callable[[], None], small_corpus: Path
) -> None:
    file_with_the_score(small_corpus)
    trained_run = train(load_config(small_corpus), "cpu", quiet=True, scores=["my_scores:Cosine"])
    assert "my_scores" in sys.modules
    import_own_score()
    shutil.rmtree(Path(trained_run) / ENGINE)
    assert trained_run.translator.translate("ba").tokens  # trusts what `train` did
    import_own_score()
    shutil.rmtree(Path(trained_run) / ENGINE)
    with pytest.raises(UserError, match=r"add scores=\['my_scores:Cosine'\]$"):
        Translator.load(trained_run, device="cpu")
    import my_scores

    import_own_score()
    assert (
        Translator.load(trained_run, device="cpu", scores=[my_scores.Cosine]).translate("ba").tokens
    )
    assert "my_scores" not in sys.modules  # the class itself was given


def test_an_imported_score_needs_no_name(import_own_score: Callable[[], None]) -> None:
    with pytest.raises(UntrustedScore):
        external_score("my_scores:Cosine", 6, 8, 4)
    import my_scores

    assert isinstance(external_score("my_scores:Cosine", 6, 8, 4), my_scores.Cosine)
    import_own_score()


def test_a_class_of_the_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook: it is in `__main__`."""
    from seq2seq.model.attention import DotScore

    class Score(DotScore):
        def __init__(self, query_size: int, output_size: int, _attention_size: int) -> None:
            super().__init__(query_size, output_size)

    monkeypatch.setattr(sys.modules["__main__"], "Score", Score, raising=False)
    assert torch.is_tensor(external_score("__main__:Score", 6, 6, 4)(*2 * [torch.ones(1, 2, 6)]))


def test_the_server_reads_the_variable(
    import_own_score: Callable[[], None],
    small_corpus: Path,
    tiny_vocabularies: Vocabularies,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("fastapi")
    from seq2seq.tools.serving.service import load_pairs

    file_with_the_score(small_corpus)
    with trusted_scores(["my_scores:Cosine"]):
        run = create_tiny_run(load_config(small_corpus), tiny_vocabularies, seed=1)
    shutil.rmtree(run / ENGINE)
    import_own_score()
    with pytest.raises(UserError, match=r"if you trust it, add "):
        load_pairs([str(run)])
    monkeypatch.setenv(VARIABLE, "my_scores:Cosine")
    (translator,) = load_pairs([str(run)]).values()
    assert translator.translate(toy_pairs(1, seed=5)[0][0]).tokens

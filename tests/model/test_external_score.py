"""Scores defined outside the package: the documented one, and invalid ones."""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from cases.tiers import one_quick
from cases.tiny_runs import create_tiny_run, tiny_config
from cases.toy_text import toy_pairs

from seq2seq.__main__ import main
from seq2seq.config.schema import Config, ConfigError, ModelConfig, load_config
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.inference.translator import Translator
from seq2seq.model.builder import build_model, check_score
from seq2seq.model.external_score import ScoreError, check_external_score, external_score
from seq2seq.model.trusted_scores import VARIABLE
from seq2seq.runs.layout import ENGINE, METRICS
from seq2seq.runtime.errors import UserError
from seq2seq.training.loop import train

pytestmark = pytest.mark.usefixtures("short_sentences")

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/own-score.md"


@pytest.fixture
def scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the module of the page, as written there, in a folder on the path; trust it."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = folder / "my_scores.py"
    path.write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "my_scores", raising=False)
    monkeypatch.setenv(VARIABLE, "my_scores:Cosine")
    return path


def written(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.usefixtures("scores")
def test_the_score_of_the_page_is_its_formula() -> None:
    score = external_score("my_scores:Cosine", 6, 8, 4)
    outputs = torch.randn(2, 5, 8)
    query = torch.randn(2, 3, 6)
    keys, values = score.project(outputs)
    assert torch.equal(values, outputs)
    computed = score(query, keys)
    weights = dict(score.named_parameters())  # type: ignore[attr-defined]
    for b in range(2):
        for k in range(3):
            for s in range(5):
                q = weights["query_projection.weight"] @ query[b, k]
                h = weights["key_projection.weight"] @ outputs[b, s]
                expected = 10 * torch.dot(q, h) / (q.norm() * h.norm())
                torch.testing.assert_close(computed[b, k, s], expected)


@pytest.mark.usefixtures("scores")
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "gnmt"])
def test_all_decoders_with_attention_support_it(decoder: str) -> None:
    sizes = {"embedding_size": 6, "hidden_size": 8, "attention_size": 4}
    config = ModelConfig.model_validate(
        {"decoder": decoder, "score": "my_scores:Cosine", "window": "local_p", **sizes}
    )
    model = build_model(config, 20, 20, joint=False)
    names = [name for name, _ in model.named_parameters() if name.endswith("score.gain")]
    assert len(names) == 1
    assert model.decoder.score.query_projection.weight.shape == (4, 8)


@pytest.mark.thorough
@pytest.mark.usefixtures("scores", "few_steps")
def test_a_run_is_trained_resumed_translated_compared_and_averaged(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ["model.score=my_scores:Cosine", "decoding.max_length=9", "training.keep=2"]

    def trained(run: str, *overrides: str, **options: Any) -> Path:
        config = load_config(small_corpus, [*keys, f"run_dir={tmp_path / run}", *overrides])
        return train(config, "cpu", quiet=True, **options)

    complete = trained("complete")
    trained("parts", "training.max_epochs=1")
    parts = trained("parts", resume=True)
    assert (parts / METRICS).read_bytes() == (complete / METRICS).read_bytes()
    lines = ["ba ke do.", "mo", ""]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    translator = Translator.load(complete, device="cpu")
    assert translator.engine.attends
    translations = translator.translate(lines, 3)
    for line, translation in zip(lines, translations, strict=True):
        single = translator.translate(line, 3)
        assert single.text == translation.text
        assert single.score == pytest.approx(translation.score, abs=1e-4)
    averaged = tmp_path / "averaged"
    assert main(["average", str(complete), "-o", str(averaged)]) == 0
    assert Translator.load(averaged, device="cpu").translate(lines)[0].text
    assert Translator.load(complete, parts, device="cpu").translate(lines)[0].text
    assert main(["check", str(small_corpus), *keys[:2], f"run_dir={tmp_path / 'new'}"]) == 0


OTHER_USES = {
    "product": ("self.query_projection(query)", "query @ self.query_projection.weight.t()"),
    "normed-rows": (
        "self.query_projection(query)",
        "functional.linear(query, functional.normalize(self.query_projection.weight))",
    ),
    "weight-norm": (
        "        self.gain =",
        "        nn.utils.parametrizations.weight_norm(self.query_projection)\n        self.gain =",
    ),
    "keys": ("self.key_projection(outputs)", "(outputs @ self.key_projection.weight.t())"),
    "derived": (
        "nn.Module):",
        "AdditiveScore):\n    def project(self, outputs):\n"
        "        return outputs @ self.key_projection.weight.mT, outputs\n\n"
        "    def weights(self):\n        return None\n\nclass Unused(nn.Module):",
    ),
}


@one_quick(("old", "new"), OTHER_USES.values(), ids=OTHER_USES)
def test_a_score_may_use_its_weights_in_any_way(
    scores: Path, tiny_vocabularies: Vocabularies, tmp_path: Path, old: str, new: str
) -> None:
    """Search computes the scores of training."""
    written(scores, old, new)
    written(scores, "import torch\n", "import torch\nfrom seq2seq.model.attention import *\n")
    tree = tiny_config(tmp_path / "run", "luong").model_dump(mode="json", exclude_unset=True)
    config = Config.model_validate(tree | {"model": tree["model"] | {"score": "my_scores:Cosine"}})
    check_score(config.model)
    run = create_tiny_run(config, tiny_vocabularies, seed=1)
    lines = toy_pairs(20, seed=5)[0]
    translator = Translator.load(run, device="cpu")
    translations = translator.translate(lines)
    assert len({translation.text for translation in translations}) > len(lines) // 3
    for line, translation in zip(lines, translations, strict=True):
        assert translator.translate(line).log_probs == pytest.approx(
            translation.log_probs, abs=1e-4
        )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("import torch\n", "import torhc\n", "cannot be imported (ModuleNotFoundError: No module "),
        ("import torch\n", "import torch\n1 / 0\n", "cannot be imported (ZeroDivisionError: divi"),
        ("class Cosine", "class Sine", "cannot be imported (AttributeError: module 'my_scores' "),
        ("class Cosine(nn.Module)", "class Cosine(dict)", "must be a torch.nn.Module with project"),
        (", attention_size):", "):", "cannot be made of query_size, output_size and attention_si"),
        ("self.context_size = output_size", "self.size = 1", "must be a torch.nn.Module with proj"),
        ("import torch\n", "import torch\nexit(1)\n", "cannot be imported (SystemExit: 1)"),
        ("return None", "return 1 / 0", "fails in a trial call (ZeroDivisionError: division by "),
        ("return None", "return 3", ".weights() must return None: the fused pass has other scores"),
        (
            "nn.Parameter(torch.tensor(10.0))",
            "torch.tensor(10.0)",
            ".gain is a tensor but no parameter, which checkpoints do not hold; make it an nn.Par",
        ),
        ("dim=-1), outputs", "dim=-1), outputs.mT", "values have the shape [2, "),
        (
            "@ keys.transpose(1, 2)",
            "@ keys.transpose(1, 2).mean(-1, keepdim=True)",
            "scores have the shape [2, 3, 1], not ",
        ),
        ("@ keys.transpose(1, 2)", "@ keys.transpose(1, 2) / 0", "scores are not finite"),
        ("@ keys.transpose(1, 2)", "@ keys", "fails in a trial call (RuntimeError: "),
    ],
)
def test_invalid_scores_are_refused_in_one_line(
    scores: Path,
    small_corpus: Path,
    old: str,
    new: str,
    reason: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    written(scores, old, new)
    with pytest.raises(ScoreError) as caught:
        check_external_score("my_scores:Cosine", 8, 8, 4)
    assert reason in str(caught.value)
    call = ["train", str(small_corpus), "model.score=my_scores:Cosine"]
    assert main(call) == 2
    error = capsys.readouterr().err
    assert error.startswith("seq2seq: error: model.score: my_scores:Cosine")
    assert reason in error
    assert error.count("\n") == 1
    assert not (small_corpus.parent / "run").exists()


def test_a_score_may_drop_out(scores: Path) -> None:
    """Dropout in training draws other entries for each call."""
    written(scores, "@ keys.transpose(1, 2)", "@ functional.dropout(keys, 0.5, self.training).mT")
    check_external_score("my_scores:Cosine", 8, 8, 4)


def test_a_run_without_its_module_is_refused(
    scores: Path, small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ["model.score=my_scores:Cosine", "training.max_steps=2", "decoding.max_length=9"]
    run = train(load_config(small_corpus, keys), "cpu", quiet=True)
    scores.unlink()
    monkeypatch.delitem(sys.modules, "my_scores")
    assert Translator.load(run, device="cpu").translate("ba").tokens  # by its graphs
    shutil.rmtree(run / ENGINE)
    message = r"^model.score: my_scores:Cosine cannot be imported \(ModuleNotFoundError: .*\); "
    with pytest.raises(UserError, match=f"{message}install it, or put its folder on PYTHONPATH$"):
        Translator.load(run, device="cpu")


@pytest.mark.parametrize("score", ["a:", ":B", "a b:C", "a..b:C", "../x:C", "a:B.c", "cosine", "A"])
def test_malformed_names_are_refused(small_corpus: Path, score: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.score.*or a class such as my_scores:Cosine"):
        load_config(small_corpus, [f"model.score={score}"])


def test_keys_of_other_scores_do_not_apply(small_corpus: Path) -> None:
    config = load_config(small_corpus, ["model.score=a.b:C", "model.attention_size=7"])
    assert config.model.score is not None
    assert (config.model.score.name, config.model.attention_size) == ("a.b:C", 7)
    with pytest.raises(ConfigError, match=r"score .*heads belongs to scaled_dot"):
        load_config(small_corpus, ["model.score={'a.b:C': 2}"])

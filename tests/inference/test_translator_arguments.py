"""The Python API: accepted lines, paths and numbers, and the messages for all others."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases.tiers import one_quick
from cases.toy_text import toy_pairs

import seq2seq
from seq2seq import Config, Translator, load_config, train
from seq2seq.__main__ import main
from seq2seq.config.schema import read_config_file
from seq2seq.data.vocabulary.vocabulary import Vocabulary
from seq2seq.engines.engine import Sampling
from seq2seq.inference.scoring import score_lines
from seq2seq.inference.settings import SearchSettings
from seq2seq.runs.layout import CONFIG
from seq2seq.runtime.errors import UserError
from seq2seq.text.glossary import Glossary

ROOT = Path(__file__).resolve().parents[2]
LINES = toy_pairs(4, seed=5)[0]


class Table:
    """Imitation of a pandas DataFrame, which iterates over the names of its columns."""

    ndim = 2

    def __iter__(self) -> Any:
        return iter(["src", "tgt"])


@pytest.fixture(scope="module")
def translator(tiny_runs: dict[str, Path]) -> Translator:
    return Translator.load(str(tiny_runs["luong"]), device=torch.device("cpu"))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def vocabulary(translator: Translator) -> Vocabulary:
    return translator.vocabularies.src


def texts(translator: Translator, lines: Any, **options: Any) -> list[str]:
    return [translation.text for translation in translator.translate(lines, **options)]


# ------------------------------------------------------------------------------------- at a prompt


def test_a_translation_prints_as_its_text_and_a_translator_as_its_run(
    translator: Translator, tiny_runs: dict[str, Path]
) -> None:
    (translation,) = translator.translate(LINES[:1])
    assert str(translation) == translation.text
    representation = f"Translation({translation.text!r}, score={translation.score:.2f})"
    assert repr(translation) == representation
    assert repr(translator) == f"Translator({str(tiny_runs['luong'])!r}, cpu)"


def test_the_package_lists_its_public_names() -> None:
    assert dir(seq2seq) == sorted([*seq2seq.__all__, "__doc__", "__version__"])


# --------------------------------------------------------------------------------- accepted values


@one_quick(
    "form",
    [
        tuple,
        iter,
        np.array,
        lambda lines: (line for line in lines),
        lambda lines: map(str, lines),
        lambda lines: io.StringIO("".join(f"{line}\n" for line in lines)),
        lambda lines: io.StringIO("".join(f"{line}\r\n" for line in lines), newline=""),
    ],
)
def test_any_ordered_iterable_of_strings_is_lines(
    translator: Translator, form: Callable[[list[str]], Any]
) -> None:
    assert texts(translator, form(LINES)) == texts(translator, LINES)
    assert texts(translator, form(LINES), prefixes=iter(["ba"] * 4)) == (
        texts(translator, LINES, prefixes=["ba"] * 4)
    )
    scores = score_lines(translator.loaded, form(LINES), form(LINES))
    assert scores == score_lines(translator.loaded, LINES, LINES)


def test_ids_are_any_ordered_iterable_of_integers(vocabulary: Vocabulary) -> None:
    (ids,) = vocabulary.encode(iter([LINES[0]]))
    for form in (tuple, iter, np.array, torch.tensor):
        assert vocabulary.decode(form(ids)) == LINES[0]
        assert vocabulary.tokens(form(ids)) == vocabulary.tokens(ids)


def test_numbers_may_come_from_numpy(translator: Translator) -> None:
    numpy_texts = texts(translator, LINES, beam_size=np.int64(3), n_best=np.int32(2))
    assert numpy_texts == texts(translator, LINES, beam_size=3, n_best=2)


def test_paths_may_be_strings(tiny_runs: dict[str, Path]) -> None:
    path = tiny_runs["luong"] / CONFIG
    assert load_config(str(path), iter(["model.dropout=0.1"])) == (
        load_config(path, ["model.dropout=0.1"])
    )


# ---------------------------------------------------------------------------------- refused values

NOT_LINES = [
    ("ba ke", "lines: must be a list of str, one sentence each, not str; pass [text], or"),
    (b"ba", "lines: must be a list of str, one sentence each, not bytes"),
    (None, "lines: must be a list of str, one sentence each, not None"),
    (7, "lines: must be a list of str, one sentence each, not int"),
    ({"a": "ba"}, "lines: must be a list of str, one sentence each, not dict"),
    ({"ba", "ke"}, "lines: must be a list of str, one sentence each, not set"),
    (Table(), "lines: must be a list of str, one sentence each, not Table"),
    (np.array("ba"), "lines: must be a list of str, one sentence each, not ndarray"),
    (["ba", None], "lines[1]: must be a str, not None"),
    (["ba", "", float("nan")], "lines[2]: must be a str, not float"),
    ([["ba", "ke"]], "lines[0]: must be a str, not list"),
    ((i for i in range(3)), "lines[0]: must be a str, not int"),
    (np.array([["ba"]]), "lines: must be a list of str, one sentence each, not ndarray"),
]


@pytest.mark.parametrize(("value", "message"), NOT_LINES[:-2] + NOT_LINES[-1:])
def test_anything_else_is_refused_wherever_lines_are_accepted(
    translator: Translator, value: Any, message: str
) -> None:
    calls: list[tuple[str, Callable[[], object]]] = [
        ("lines", lambda: translator.stream(value)),
        ("prefixes", lambda: translator.translate(LINES, prefixes=value)),
        ("lines", lambda: score_lines(translator.loaded, value, LINES)),
        ("translations", lambda: score_lines(translator.loaded, LINES, value)),
    ]
    for name, call in calls:
        if name == "prefixes" and value is None:
            continue
        if name == "lines" and not isinstance(value, str):  # one string has one translation
            with pytest.raises(TypeError, match=re.escape(message)):
                translator.translate(value)
        with pytest.raises(TypeError) as caught:
            call()
        expected_message = message.replace("lines", name, 1)
        if name == "prefixes":
            expected_message = expected_message.replace(
                "one sentence each", "one per line, '' for none"
            )
        assert str(caught.value).startswith(expected_message)
        assert "\n" not in str(caught.value)


def test_the_first_element_of_a_generator_that_is_not_text_is_named(translator: Translator) -> None:
    value, message = NOT_LINES[-2]
    with pytest.raises(TypeError, match=re.escape(message)):
        translator.translate(value)


@pytest.mark.parametrize("name", ["beam_size", "n_best"])
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("5", TypeError, "must be an int, not '5'"),
        (2.0, TypeError, "must be an int, not 2.0"),
        (float("nan"), TypeError, "must be an int, not nan"),
        (True, TypeError, "must be an int, not True"),
        (0, UserError, "must be at least 1, not 0"),
        (-3, UserError, "must be at least 1, not -3"),
        (10**9, UserError, "must be at most 1000000, not 1000000000"),
    ],
)
def test_invalid_numbers_of_hypotheses_are_refused(
    translator: Translator, name: str, value: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=rf"^{name}: {re.escape(message)}$"):
        translator.translate(LINES, **{name: value})


def test_lines_and_translations_must_be_equally_many(translator: Translator) -> None:
    with pytest.raises(UserError, match=r"^4 lines have 3 translations; give one each$"):
        score_lines(translator.loaded, LINES, LINES[:3])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Translator.load(), "runs: name at least one run folder"),
        (lambda: load_config("a", "model.dropout=0"), "overrides: must be a list of str, such as"),
        (lambda: load_config("a", {"seed": 1}), "overrides: must be a list of str, such as ['mod"),
        (lambda: load_config("a", [("seed", 1)]), "overrides[0]: must be a str, not tuple"),  # type: ignore[list-item]
        (lambda: train("a.yaml"), "config: must be a Config, not 'a.yaml'; write config = load_"),  # type: ignore[arg-type]
        (lambda: SearchSettings(forbidden="ba"), "forbidden: must be a list of str, words and phr"),  # type: ignore[arg-type]
        (lambda: SearchSettings(forbidden=None), "forbidden: must be a list of str, words and phr"),  # type: ignore[arg-type]
        (lambda: SearchSettings(forbidden=(None,)), "forbidden[0]: must be a str, not None"),  # type: ignore[arg-type]
        (lambda: SearchSettings(forbidden=("a", b"ba")), "forbidden[1]: must be a str, not bytes"),  # type: ignore[arg-type]
        (lambda: train({}), "config: must be a Config, not {}; write config = load_config('my"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_are_refused_with_the_expected_type(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value).startswith(message)


def sampled(**fields: Any) -> SearchSettings:
    return SearchSettings(sampling=Sampling(**fields))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"constraints": {("ba",), ("ke",)}}, "constraints: must be a list with a list of str "),
        ({"constraints": "abcd"}, "constraints: must be a list with a list of str for each line"),
        ({"constraints": 3}, "constraints: must be a list with a list of str for each line, [] fo"),
        ({"constraints": ["ba"] * 4}, "constraints[0]: must be a list of str, phrases, [] for"),
    ],
)
def test_requirements_of_other_types_are_refused(
    translator: Translator, arguments: dict[str, Any], message: str
) -> None:
    for call in (translator.translate, translator.stream):
        with pytest.raises(TypeError) as caught:
            call(LINES, **arguments)
        assert str(caught.value).startswith(message)


def test_settings_accept_numbers_of_numpy(translator: Translator) -> None:
    settings = sampled(samples=np.int64(2), seed=np.int32(3), temperature=np.float32(0.5), top_p=1)
    assert texts(translator, LINES, settings=settings) == (
        texts(translator, LINES, settings=sampled(samples=2, seed=3, temperature=0.5))
    )


def test_forbidden_words_are_any_ordered_iterable_and_kept_as_given(translator: Translator) -> None:
    words = sorted({word for text in texts(translator, LINES) for word in text.split()})
    expected = texts(translator, LINES, settings=SearchSettings(forbidden=tuple(words)))
    assert expected != texts(translator, LINES)
    settings_of_iterator = SearchSettings(forbidden=iter(words))  # type: ignore[arg-type]
    for _ in range(2):
        assert texts(translator, LINES, settings=settings_of_iterator) == expected
    words_of_caller = ["never"]
    settings = SearchSettings(forbidden=words_of_caller)  # type: ignore[arg-type]
    expected_texts = texts(translator, LINES, settings=settings)
    words_of_caller[:] = words
    assert texts(translator, LINES, settings=settings) == expected_texts
    assert texts(translator, LINES, settings=SearchSettings(forbidden=words_of_caller)) == expected  # type: ignore[arg-type]


def test_glossaries_come_from_dicts_and_named_files(tmp_path: Path) -> None:
    terms = {"ba": "mo", "ke": "zu"}
    (tmp_path / "terms.tsv").write_text("ba\tmo\nke\tzu\n", encoding="utf-8")
    for glossary in (Glossary(terms), Glossary(iter(terms.items()))):
        assert dict(glossary.terms()) == terms
    assert dict(Glossary.read(str(tmp_path / "terms.tsv")).terms()) == terms


def test_ignored_keys_of_a_config_are_logged(
    tiny_runs: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    path = tiny_runs["luong"] / CONFIG
    _, notes = read_config_file(path, ["model.decoder=none"])
    assert notes
    with caplog.at_level("INFO", "seq2seq"):
        config = load_config(path)
        assert caplog.messages == []
        plain = load_config(path, ["model.decoder=none"])
    assert caplog.messages == [f"note: {note}" for note in notes]
    assert (config.model.decoder, plain.model.decoder) == ("luong", "none")
    with pytest.raises(TypeError, match=r"^config: must be a Config, not \(Config"):
        train((config, []))  # type: ignore[arg-type]


# --------------------------------------------------------------- arguments and options in messages


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        call()
    return str(caught.value)


def test_messages_name_arguments_in_python_and_options_in_a_shell(
    tiny_runs: dict[str, Path], translator: Translator, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_runs["luong"]
    config: Config = load_config(run / CONFIG, [f"run_dir={run}"])
    held = refusal(lambda: train(config))
    assert held.endswith(
        "already holds a run. Resume it with resume=True, replace it with overwrite=True, "
        "or set another run_dir"
    )
    assert main(["train", str(run / CONFIG), f"run_dir={run}"]) == 2
    shell = capsys.readouterr().err
    assert "Resume it with --resume, replace it with --overwrite, or set another run_dir" in shell
    assert refusal(lambda: train(config, resume=True, overwrite=True)) == (
        "resume=True and overwrite=True: give one of them"
    )
    assert refusal(lambda: train(config, "tpu", overwrite=True)) == (
        "device='tpu': must be auto, cpu, cuda, cuda:N or mps"
    )
    assert "device='cuda:99': this machine has" in refusal(
        lambda: Translator.load(run, device="cuda:99")
    )
    assert refusal(lambda: translator.translate(LINES, beam_size=2, n_best=3)) == (
        "n_best=3: larger than the beam (2); increase beam_size"
    )
    assert f"init_from={run}: is run_dir itself" in refusal(
        lambda: train(config, overwrite=True, init_from=str(run))
    )


def test_prepared_lines_are_translated_as_lines_are(tiny_runs: dict[str, Path]) -> None:
    translator = Translator.load(tiny_runs["luong"], device="cpu")
    lines = ["ba ka.", "", "zu ti " * 60]
    prefixes = ["zu", "", ""]
    prepared = translator.prepare(lines, prefixes=prefixes, constraints=[["ka"], [], []])
    expected = translator.translate(lines, 3, prefixes=prefixes, constraints=[["ka"], [], []])
    assert translator.translate(prepared, 3) == expected
    with pytest.raises(UserError, match="prefixes"):
        translator.prepare(lines, prefixes=["zu"])

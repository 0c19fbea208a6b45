"""Each option of search reaches all that is made from its record."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from seq2seq.__main__ import GROUPS, main
from seq2seq.cli import arguments, search_arguments
from seq2seq.cli.parser import parse
from seq2seq.config.decoding import DecodingConfig
from seq2seq.config.search_options import (
    ANY,
    EXCLUSIONS,
    Bounds,
    CallOptions,
    Decoding,
    Item,
    Sampling,
    choices_of,
    fault_of,
    item_of,
    kind_of,
    option_of,
    plain_options,
)
from seq2seq.inference import part_search
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.settings import DEFAULT_SETTINGS, SearchSettings
from seq2seq.inference.translator import Translator
from seq2seq.runs.engine_folder import read_description
from seq2seq.runtime.errors import UserError
from seq2seq.text.glossary import Glossary
from seq2seq.tools.serving import v1

EXPORT = Path(__file__).parents[1] / "cases/written_at_56a3ce7b/copying-export"
KEYS = fields(Decoding)
PLAIN = [*plain_options(CallOptions), *plain_options(Sampling)]
SERVED = [item for item in (*KEYS, *PLAIN) if option_of(item).served is not None]
FLAGGED = [item for item in PLAIN if option_of(item).flag is not None]


def name_of(item: Item) -> str:
    return item.name


def other_value(item: Item) -> Any:
    """Return a value within the bounds that is not the default."""
    if choices := choices_of(item):
        return choices[-1]
    if kind_of(item) is bool:
        return not item.default
    return 0.5 if option_of(item).bounds.most == 1 else kind_of(item)((item.default or 0) + 1)


class StopSearch(Exception):
    """End of a translation whose options are known."""


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[SearchOptions]]:
    """Yield a list into which searches write their options, in place of a translation."""
    options_of_searches: list[SearchOptions] = []

    def record(_engine: object, _requests: object, options: SearchOptions, *_: object) -> None:
        options_of_searches.append(options)
        raise StopSearch

    monkeypatch.setattr(part_search, "search", record)
    yield options_of_searches
    assert options_of_searches


@pytest.mark.parametrize("item", KEYS, ids=name_of)
def test_a_key_reaches_config_export_and_search(
    item: Item, searched: list[SearchOptions], tmp_path: Path
) -> None:
    value = other_value(item)
    declared = DecodingConfig.model_fields[item.name]  # type: ignore[attr-defined]
    assert declared.default == item.default
    assert declared.description == option_of(item).description
    assert getattr(DecodingConfig(**{item.name: str(value)}), item.name) == value

    folder = shutil.copytree(EXPORT, tmp_path / "export")
    description = json.loads((folder / "export.json").read_text("utf-8"))
    description["decoding"][item.name] = value
    (folder / "export.json").write_text(json.dumps(description), "utf-8")
    assert getattr(read_description(folder).decoding, item.name) == value

    override = f"decoding.{item.name}={json.dumps(value)}"
    translator = Translator.load(EXPORT, overrides=[override])
    with pytest.raises(StopSearch):
        translator.translate("A tree.")
    assert getattr(searched[0], item.name) == value


@pytest.mark.parametrize("item", plain_options(CallOptions), ids=name_of)
def test_an_option_of_a_call_reaches_search(item: Item, searched: list[SearchOptions]) -> None:
    value = other_value(item)
    translator = Translator.load(EXPORT)
    with pytest.raises(StopSearch):
        translator.translate("A tree.", 4, settings=SearchSettings(**{item.name: value}))
    assert getattr(searched[0], item.name) == value


def record_of(settings: SearchSettings, item: Item) -> Any:
    """Return the record of the settings that has an option."""
    return settings.sampling if item in fields(Sampling) else settings


@pytest.mark.parametrize("item", FLAGGED, ids=name_of)
def test_a_flag_reaches_the_settings(item: Item) -> None:
    value = other_value(item)
    words = [arguments.option(item.name)]
    if kind_of(item) is not bool:
        words.append(str(value))
    if item in fields(Sampling) and item.name != "samples":
        words += ["--sample", "1"]
    if item.name == "diversity":
        words += ["--groups", "2"]
    options = parse(["translate", "-m", "run", *words], GROUPS).options
    settings = search_arguments.search_settings(options.search, options.beam)
    assert getattr(record_of(settings, item), item.name) == value


@pytest.mark.parametrize("item", SERVED, ids=name_of)
def test_a_request_has_the_bounds_and_reaches_the_settings(item: Item) -> None:
    schema = v1.TranslateLines.model_json_schema()
    of_sampling = item in fields(Sampling)
    keys = schema["$defs"]["SamplingRequest"]["properties"] if of_sampling else schema["properties"]
    number = {**keys[item.name], **(keys[item.name].get("anyOf") or [{}])[0]}
    bounds = option_of(item).served
    assert (number.get("minimum"), number.get("maximum")) == (bounds.least, bounds.most)
    if item in KEYS:
        return  # an argument of `translate`
    assert keys[item.name]["description"] == option_of(item).description
    assert keys[item.name]["default"] == item.default

    value = other_value(item)
    option_fields: dict[str, Any] = {item.name: value}
    body = v1.TranslateLines.model_validate(
        {"text": "A tree.", **({"sampling": option_fields} if of_sampling else option_fields)}
    )
    settings = v1._settings(DEFAULT_SETTINGS, body)
    assert getattr(record_of(settings, item), item.name) == value


def option_file(folder: Path, name: str) -> str:
    """Return a file of a glossary or of phrases for one line."""
    path = folder / name
    path.write_text("tree\tbaum\n" if name == "glossary" else "baum\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("this", "that"), EXCLUSIONS)
def test_options_that_exclude_each_other_are_refused_as_the_caller_spells_them(
    this: str, that: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Requests of the server are among the tests of its API."""
    glossary = Glossary({"tree": "baum"})
    values = {"sampling": Sampling(2), "groups": 2, "glossary": glossary}
    arguments_of_call = {"beam_size": 4, "constraints": ["baum"]}
    excluding_values = {name: value for name, value in values.items() if name in (this, that)}
    excluding_arguments = {
        name: value for name, value in arguments_of_call.items() if name in (this, that)
    }
    text = f"^{this} cannot be used with {that}; remove one of them$"
    if excluding_arguments:
        settings = SearchSettings(**excluding_values)
        with pytest.raises(UserError, match=text):
            Translator.load(EXPORT).translate("A tree.", **excluding_arguments, settings=settings)
    else:
        with pytest.raises(UserError, match=text):
            SearchSettings(**excluding_values)

    numbers = {"beam_size": "4", "sampling": "2", "groups": "2"}
    words = []
    for name in (this, that):
        value = numbers.get(name) or option_file(tmp_path, name)
        words += [arguments.option(name), value]
    assert main(["translate", "-m", "no run, and none is needed", "A tree.", *words]) == 2
    spelled_this, spelled_that = map(arguments.option, (this, that))
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{spelled_this} cannot be used with {spelled_that}; remove one of them" in line


def test_the_lists_of_options_are_not_empty() -> None:
    assert {"beam_size", "min_length"} <= {item.name for item in KEYS}
    assert {"samples", "groups", "mbr"} <= {item.name for item in FLAGGED}
    assert {"beam_size", "samples", "groups", "mbr"} <= {item.name for item in SERVED}


def test_records_with_other_values_are_taken_by_commands_and_requests() -> None:
    """The glossary and the forbidden words are files of a command, and lists of a request."""
    words = ["translate", "-m", "run", "--glossary", "a", "--forbidden", "b"]
    required = parse(words, GROUPS).options.search.required
    assert (required.glossary, required.forbidden) == (Path("a"), Path("b"))
    served = {item.name for item in fields(CallOptions) if option_of(item).served is not None}
    assert {"glossary", "forbidden", "sampling"} <= served
    assert served <= v1.TranslateLines.model_fields.keys()


def test_a_search_has_the_options_of_both_records_by_different_names() -> None:
    """One would hide the other."""
    names = [item.name for item in (*KEYS, *fields(CallOptions))]
    assert len(set(names)) == len(names)
    assert set(names) <= {item.name for item in fields(SearchOptions)}


@pytest.mark.parametrize("item", [*KEYS, *PLAIN], ids=name_of)
def test_a_default_is_within_the_bounds(item: Item) -> None:
    assert fault_of(item, item.default) is None
    assert fault_of(item, other_value(item)) is None


@pytest.mark.parametrize(
    ("bounds", "valid", "invalid", "rule"),
    [
        (Bounds(least=1), [1, 10**9], [0, -1], "must be at least 1"),
        (
            Bounds(above=0),
            [1e-9, 9.0],
            [0, float("inf"), float("nan")],
            "must be a positive number",
        ),
        (Bounds(least=0, most=5_000), [0, 5_000], [-1, 5_001], "must be from 0 to 5,000"),
        (Bounds(above=0, most=1), [0.1, 1], [0, 1.1], "must be above 0 and at most 1"),
        (Bounds(above=1), [1.1, 9], [1, -1], "must be above 1"),
        (Bounds(most=2_000), [-9, 2_000], [2_001, float("nan")], "must be at most 2,000"),
    ],
)
def test_bounds_hold_and_are_said_in_words(
    bounds: Bounds, valid: list[float], invalid: list[float], rule: str
) -> None:
    assert bounds.rule() == rule
    assert all(map(bounds.hold, valid))
    assert not any(map(bounds.hold, invalid))


def test_words_are_checked() -> None:
    item = item_of(CallOptions, "mbr")
    assert option_of(item).bounds == ANY
    assert fault_of(item, "ter") == "must be one of chrf, bleu"
    assert fault_of(item, None) is None
    with pytest.raises(TypeError):
        fault_of(item_of(CallOptions, "groups"), None)

"""Variants to compare: from one YAML file that lists them, or from several configs."""

import re
from pathlib import Path

import pytest

from seq2seq.config.errors import ConfigError
from seq2seq.config.schema import load_config
from seq2seq.runtime.errors import UserError
from seq2seq.tools.analysis.compare.variants import Plan, parse_seeds, read_plan

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
HEAD = "base: config.yaml\nfolder: out\nvariants:\n"


def listed(corpus: Path, text: str, *overrides: str, head: str = HEAD) -> Plan:
    path = corpus.parent / "listed.yaml"
    path.write_text(head + text, encoding="utf-8")
    return read_plan([path], overrides)


def refusal(corpus: Path, text: str, *overrides: str, head: str = HEAD) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        listed(corpus, text, *overrides, head=head)
    path = str(corpus.parent / "listed.yaml")
    place = re.compile(rf"{re.escape(path)}:(?:(\d+):)? ")
    return [
        place.sub(lambda match: f"line {match[1]}: " if match[1] else "", line, count=1)
        for line in str(caught.value).splitlines()
    ]


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("compare-*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_comparison_is_valid(path: Path) -> None:
    plan = read_plan([path])
    assert plan.folder == Path("runs") / path.stem
    assert len(plan.seeds) == 3


def test_a_variant_is_the_base_config_with_its_own_keys(small_corpus: Path) -> None:
    slow = "{training.max_epochs: null, training.max_steps: 9}"
    text = f"  wide: {{model.hidden_size: 30}}\n  plain:\n  slow: {slow}"
    plan = listed(small_corpus, text, "model.dropout=0.1")
    keys = {"wide": ["model.hidden_size=30"], "plain": []}
    keys["slow"] = ["training.max_epochs=null", "training.max_steps=9"]
    assert plan.seeds == (1, 2, 3)
    for variant in plan.variants:
        name = f"{variant.name}-seed7"
        run_keys = (f"name={name}", f"run_dir=out/{name}", "seed=7", "model.dropout=0.1")
        expected = load_config(small_corpus, [*keys.pop(variant.name), *run_keys])
        assert plan.run_config(variant, 7) == expected
    assert not keys


def test_the_base_may_be_in_the_home_folder(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(small_corpus.parent))
    monkeypatch.setenv("USERPROFILE", str(small_corpus.parent))
    head = HEAD.replace("config.yaml", "~/config.yaml")
    (variant,) = listed(small_corpus, "  a: {model.dropout: 0.1}\n", head=head).variants
    expected = load_config(small_corpus, ["model.dropout=0.1"])
    assert variant.config.model == expected.model


def test_the_command_line_overrides_the_file(small_corpus: Path) -> None:
    path = small_corpus.parent / "listed.yaml"
    path.write_text(f"{HEAD}  a: {{model.dropout: 0.1}}\nseeds: 4, 5\n", encoding="utf-8")
    assert read_plan([path]).seeds == (4, 5)
    plan = read_plan([path], ["model.dropout=0.5"], "8", Path("elsewhere"))
    assert plan.seeds == (8,)
    assert plan.folder == Path("elsewhere")
    assert plan.variants[0].config.model.dropout.hidden == 0.5


def test_variants_that_differ_only_in_decoding_share_runs(small_corpus: Path) -> None:
    text = "  a: {}\n  b: {model.dropout: 0}\n  c: {decoding.beam_size: 1}\n"
    plan = listed(small_corpus, text + "  d: {model.dropout: 0, decoding.length_penalty: 0}")
    a, b, c, d = plan.variants
    assert [plan.trained_as(variant) for variant in plan.variants] == [a, b, a, b]
    assert plan.trained() == (a, b)
    assert plan.run_config(c, 1).run_dir == plan.run_config(a, 1).run_dir == Path("out/a-seed1")
    assert d.config.decoding.length_penalty == 0


def test_configs_are_variants_by_their_names(small_corpus: Path) -> None:
    second_config = small_corpus.parent / "other.yaml"
    text = small_corpus.read_text(encoding="utf-8").replace("decoder: bahdanau", "decoder: luong")
    second_config.write_text(text.replace("name: small", "name: luong"), encoding="utf-8")
    plan = read_plan([small_corpus, second_config])
    assert [variant.name for variant in plan.variants] == ["small", "luong"]
    assert [variant.config.model.decoder for variant in plan.variants] == ["bahdanau", "luong"]
    assert any("attention_size" in note for note in plan.notes)  # ignored, as in training
    with pytest.raises(UserError, match="small: two variants have this name"):
        read_plan([small_corpus, small_corpus])
    listed(small_corpus, "  a: {}")
    with pytest.raises(UserError, match="lists variants itself"):
        read_plan([small_corpus.parent / "listed.yaml", second_config])


def test_variants_of_different_directions_are_refused(small_corpus: Path) -> None:
    with pytest.raises(UserError, match="Compare models of one direction"):
        listed(small_corpus, "  a: {}\n  b: {data.tgt_lang: zh}")


def test_the_errors_of_all_variants_are_reported_at_once_with_their_lines(
    small_corpus: Path,
) -> None:
    text = """\
  a: {model.dropuot: 0.1, model.dropout: 2}
  b: {model: {dropout: 0.1}}
  c d: {}
  e: {seed: 3}
  f: {model.decoder: none, model.score: dot}
  g: yes
"""
    lines = refusal(small_corpus, text)
    assert [line.partition(":")[0] for line in lines] == [
        f"line {number}" for number in (4, 4, 5, 6, 7, 8, 9)
    ]
    report = "\n".join(lines)
    unknown_key = "variants.a: model.dropuot (override): unknown key; did you mean 'dropout'?"
    assert unknown_key in report
    assert "variants.a: model.dropout (override): must be less than 1; got 2" in report
    assert "variants.f: model.score (override): decoder none has no attention" in report
    (line,) = refusal(small_corpus, "  a: {}", "training.max_stpes=3")
    assert line.startswith("line 4: variants.a: training.max_stpes (override): unknown key")


def test_the_errors_of_a_list_are_reported_at_once(small_corpus: Path) -> None:
    lines = refusal(small_corpus, "  a: {}\n  a: {}\nfodler: x\nseeds: [1, one]\n")
    report = "\n".join(lines)
    assert "line 5: variants.a: set twice" in report
    assert "line 6: fodler: unknown key" in report
    assert "line 7: seeds: must be integers, such as 1, 2, 3" in report


def test_an_error_caused_by_base_and_variant_names_both(small_corpus: Path) -> None:
    text = "  odd: {model.hidden_size: 21}\n  both: {model.encoder: forward}"
    (line,) = refusal(small_corpus, text)
    assert line.startswith("line 4: variants.odd: model.hidden_size (override): must be even")
    base = small_corpus.read_text(encoding="utf-8").replace(
        "size: 20", "size: 21, encoder: forward"
    )
    small_corpus.write_text(base, encoding="utf-8")
    (line,) = refusal(small_corpus, "  ok: {}\n  both: {model.encoder: bidirectional}")
    assert line.startswith("line 5: variants.both: ")
    assert "config.yaml:11: model.hidden_size: must be even" in line


@pytest.mark.parametrize(
    ("head", "text", "message"),
    [
        ("variants:\n", "  a: {}", "base: required key is missing"),
        (HEAD, "", "line 3: variants: must be a section with keys"),
        (HEAD, "  {}", "line 3: variants: must not be empty"),
        ("base: config.yaml\nvariants: [a]\n", "", "line 2: variants: must be a section"),
    ],
)
def test_an_incomplete_file_is_refused(
    small_corpus: Path, head: str, text: str, message: str
) -> None:
    (line,) = refusal(small_corpus, text, head=head)
    assert line.startswith(message)


def test_a_wrong_or_missing_base_is_named(small_corpus: Path) -> None:
    (line,) = refusal(small_corpus, "  a: {}", head=HEAD.replace("config", "confog"))
    hint = f"; did you mean '{small_corpus.parent / 'config.yaml'}'?"
    assert line.endswith(f"confog.yaml: no such file{hint}")
    (line,) = refusal(small_corpus, "  a: {}", head=HEAD.replace("config", "listed"))
    assert line.endswith("has the key variants; use it with `seq2seq compare`")
    text = small_corpus.read_text(encoding="utf-8").replace("dropout", "dropuot")
    small_corpus.write_text(text, encoding="utf-8")
    (line,) = refusal(small_corpus, "  a: {}\n  b: {}\n")
    assert "config.yaml:11: model.dropuot: unknown key" in line


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("  a: {}\n  A: {model.dropout: 0}", (), "A: two variants have this name"),
        ("  a: {}\n  b: {}", (), "b: equals a in every key"),
        ("  a: {}\n  b: {model.dropout: 0}", ("model.dropout=0",), "equals a in every key"),
        ("  a: {}\n  b: {data.test: null}", (), r"b: data\.test differs from that of a"),
        ("  a: {}\n  b: {data.valid.src: x}", (), r"b: data\.valid differs from that of a"),
        ("  a: {}", ("seed=3",), "seed=3: set seeds, such as 1,2,3"),
    ],
)
def test_incomparable_variants_are_refused(
    small_corpus: Path, text: str, overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        listed(small_corpus, text, *overrides)


def test_different_training_text_is_noted(small_corpus: Path) -> None:
    plan = listed(small_corpus, "  a: {}\n  b: {data.train.src: more.src}")
    assert plan.notes == ("b: trained on other files than a (data.train)",)


@pytest.mark.parametrize("seeds", ["", "1,,2", "1,x", "-1", "1,1", [], [[]], "9" * 30, None])
def test_seeds_are_distinct_integers(seeds: object) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_seeds(seeds)
    assert parse_seeds(" 3, 1") == parse_seeds(["3", "1"]) == (3, 1)

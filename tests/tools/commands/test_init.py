"""`seq2seq init`: a config that suits the corpus, the machine and the time."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cases.toy_text import toy_pairs

from seq2seq.__main__ import main
from seq2seq.config.schema import DataConfig, VocabularyConfig, load_config, read_config_file
from seq2seq.data.corpus import ParallelText, read_pairs
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.runtime.errors import RunError
from seq2seq.tools.analysis import recipe
from seq2seq.tools.analysis.check.forecast import FEW_STEPS, Forecast
from seq2seq.tools.analysis.recipe import Recipe, TextFacts, choose, measure_text
from seq2seq.training.session import TrainingSession

CPU = torch.device("cpu")
LANGUAGES = ["--src-lang", "en", "--tgt-lang", "de"]
ALL = ["--train", "all.en", "all.de"]
COST_STEPS: dict[str, int] = {}  # replaced by a test
COST = Forecast("cpu", 1, 1, None, None, 10, None, 5, 100.0, 1.0)  # one second an epoch


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for side, lines in zip(("en", "de"), toy_pairs(200, seed=1), strict=True):
        Path(f"all.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


@pytest.fixture
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every model the same speed, instead of measuring it."""
    monkeypatch.setattr(recipe, "forecast", lambda _session: COST)


def pairs_of(files: object) -> set[tuple[str, str]]:
    text = read_pairs(files)  # type: ignore[arg-type]
    return set(zip(text.src, text.tgt, strict=True))


@pytest.mark.thorough
@pytest.mark.usefixtures("_measured")
def test_regularisation_and_average_suit_the_length_of_training() -> None:
    src, tgt = toy_pairs(200, seed=1)
    facts = measure_text(zip(src, tgt, strict=True), "the text")
    files = {"src": "all.en", "tgt": "all.de"}
    data = DataConfig.model_validate(
        {"src_lang": "en", "tgt_lang": "de", "train": files, "valid": files}
    )
    long = choose(facts, data, None, CPU).sections  # 40 epochs of 10 steps
    assert (long["model"]["dropout"], long["vocabulary"]["sampling"]) == (0.2, 0.5)
    assert long["training"]["average"] == 0.99
    wide = facts._replace(sample=ParallelText(src, [" ".join([line] * 20) for line in tgt], "wide"))
    assert choose(wide, data, None, CPU).sections["data"]["max_length"] > 100


@pytest.mark.usefixtures("folder")
def test_files_of_the_other_languages_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["init", "my.yaml", "--src-lang", "de", "--tgt-lang", "en", *ALL]
    assert main(words) == 2
    assert capsys.readouterr().err == (
        "seq2seq: error: all.en: has to be in de here, but its name ends in en. Exchange the "
        "files or the languages\n"
    )
    assert sorted(path.name for path in Path().iterdir()) == ["all.de", "all.en"]
    valid = ["--valid", "all.de.gz", "all.en.gz"]
    for name in valid[1:]:
        Path(name).touch()
    assert main(["init", "my.yaml", *LANGUAGES, *ALL, *valid]) == 2
    assert "all.de.gz: has to be in en here, but its name ends in de" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_language_that_is_no_code_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    languages = ["--src-lang", "q7", "--tgt-lang", "de"]
    assert main(["init", "my.yaml", *languages, *ALL, "--hold-out", "9000"]) == 2
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note")]
    assert notes == ["note: init --src-lang: 'q7' is not a language code known here"]


@pytest.mark.usefixtures("folder")
def test_the_name_of_a_language_is_refused_before_any_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The corrected call would find a folder of the wrong one in its way."""
    languages = ["--src-lang", "English", "--tgt-lang", "de"]
    assert main(["init", "my.yaml", *languages, *ALL]) == 2
    assert capsys.readouterr().err == (
        "seq2seq: error: init --src-lang: 'English' is not the code of a language; "
        "did you mean 'en'?\n"
    )
    assert sorted(path.name for path in Path().iterdir()) == ["all.de", "all.en"]


@pytest.mark.usefixtures("folder")
def test_a_refused_language_leaves_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "my.yaml", "--src-lang", "", "--tgt-lang", "de", *ALL]) == 2
    assert capsys.readouterr().err == "seq2seq: error: init --src-lang: must not be empty\n"
    assert not Path("my-data").exists()


@pytest.mark.thorough
@pytest.mark.usefixtures("few_steps")
def test_init_writes_a_config_that_trains(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("conf").mkdir()
    assert main(["init", "conf/my.yaml", *LANGUAGES, *ALL, "--minutes", "2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith("conf/my-data: 190 pairs to train on, 10 held out")
    assert lines[1].startswith("conf/my.yaml: luong decoder, ")
    assert lines[-1] == "Train:     seq2seq train conf/my.yaml"
    config, notes = read_config_file("conf/my.yaml")
    assert notes == []
    assert (config.name, config.run_dir) == ("my", Path("runs/my"))
    train = pairs_of(config.data.train)
    valid = pairs_of(config.data.valid)
    assert not train & valid
    text = [Path(f"all.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")]
    assert train | valid == set(zip(*text, strict=True))
    assert not {src for src, _ in train} & {src for src, _ in valid}
    short = ["training.max_minutes=null", "training.max_steps=2", "training.validate_every=2"]
    assert main(["train", "conf/my.yaml", *short, "--device", "cpu"]) == 0
    assert (folder / "runs/my/best.safetensors").exists()


@pytest.mark.usefixtures("_measured")
def test_given_validation_and_test_texts_are_not_moved(folder: Path) -> None:
    Path("all.tsv").write_text("".join(f"x\t{n}\ta b {n}\n" for n in range(300)), encoding="utf-8")
    Path("valid.tsv").write_text("id\t1\ta b 1\n", encoding="utf-8")
    texts = ["--train", "all.tsv", "--valid", "valid.tsv", "--test", "valid.tsv"]
    assert main(["init", "my.yaml", *LANGUAGES, *texts, "--columns", "2,3"]) == 0
    assert not (folder / "my-data").exists()
    data = load_config("my.yaml").data
    assert data.test is not None
    for files, name in ((data.train[0], "all"), (data.valid, "valid"), (data.test, "valid")):
        assert (files.file, files.columns) == (Path(f"{name}.tsv"), ["2", "3"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*ALL, "--valid", "all.en", "all.de", "--hold-out", "9"], "either --valid or --hold-out"),
        ([*ALL, "--hold-out", "201"], "200 pairs with text leave none for train; lower --hold-out"),
        ([*ALL, "--minutes", "0"], "--minutes: must be a number above 0, not '0'"),
        (["--train", "all.en", "none.de"], "none.de: no such file"),
        (["--train", "all.en", "all.de", "all.en"], "init: give two files"),
        (["--train", "all.en", "all.en"], "init --train: src and tgt are the same file"),
        (["--train", "all.csv"], "all.csv needs --columns"),
    ],
)
def test_an_error_is_one_line_and_writes_no_files(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "my.yaml", *LANGUAGES, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
    assert not (folder / "my.yaml").exists()


@pytest.mark.usefixtures("folder", "_measured")
def test_a_failure_leaves_no_folder_of_held_out_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_space(*_: object) -> None:
        assert Path("my-data").is_dir()
        raise RunError("no space")

    monkeypatch.setattr("seq2seq.tools.corpora.splitting.write_parts", no_space)
    assert main(["init", "my.yaml", *LANGUAGES, *ALL, "--hold-out", "10"]) == 1
    assert "no space" in capsys.readouterr().err
    assert not Path("my-data").exists()


@pytest.mark.usefixtures("folder", "_measured")
def test_files_are_replaced_only_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["init", "my.yaml", *LANGUAGES, *ALL, "--hold-out", "10", "--minutes", "1"]
    Path("my-data").mkdir()
    Path("my-data/valid.de").write_text("mine\n", encoding="utf-8")
    assert main(arguments) == 2
    assert "my-data/valid.de: exists; pass --overwrite" in capsys.readouterr().err
    Path("my-data/valid.de").unlink()
    Path("my.yaml").write_text("mine\n", encoding="utf-8")
    assert main(arguments) == 2
    assert "my.yaml: exists; pass --overwrite" in capsys.readouterr().err
    assert main([*arguments, "--overwrite"]) == 0
    assert load_config("my.yaml").name == "my"


@pytest.mark.usefixtures("_measured")
def test_held_out_text_of_a_killed_call_is_replaced(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The config is written last: without it, the same command divides the text again."""
    arguments = ["init", "my.yaml", *LANGUAGES, *ALL, "--hold-out", "10", "--minutes", "1"]
    assert main(arguments) == 0
    contents = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    Path("my.yaml").unlink()
    Path("my-data/valid.de").unlink()
    assert main(arguments) == 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == contents
    Path("my.yaml").unlink()
    for name, changed in (("train.en", "a line more\n"), ("valid.de", "")):
        path = Path("my-data", name)
        complete = path.read_text(encoding="utf-8")
        path.write_text(complete + changed if changed else complete[:-2], encoding="utf-8")
        assert main(arguments) == 2
        assert f"my-data/{name}: exists; pass --overwrite" in capsys.readouterr().err
        path.write_text(complete, encoding="utf-8")
    assert main(arguments) == 0


@pytest.mark.parametrize("name", ["train.de", "valid.en", "train.de.part"])
@pytest.mark.parametrize("kind", ["itself", "link", "hard"])
def test_held_out_text_replaces_no_input(
    folder: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Path("my-data", name)
    output.parent.mkdir()
    output.write_bytes(Path("all.de").read_bytes())
    input_path = output if kind == "itself" else Path("given")
    if kind != "itself":
        input_path.symlink_to(output) if kind == "link" else input_path.hardlink_to(output)
    contents_before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    sides = ["all.en", str(input_path)] if ".de" in name else [str(input_path), "all.de"]
    for texts in (["--train", *sides], [*ALL, "--test", *sides]):
        assert main(["init", "my.yaml", *LANGUAGES, *texts, "--overwrite"]) == 2
        target = name.removesuffix(".part")
        assert f"my-data/{target}: is read by this command; choose" in capsys.readouterr().err
    assert {
        path: path.read_bytes() for path in folder.rglob("*") if path.is_file()
    } == contents_before


@pytest.mark.usefixtures("folder", "_measured")
def test_a_linked_config_is_written_through_its_link(capsys: pytest.CaptureFixture[str]) -> None:
    Path("conf").mkdir()
    Path("my.yaml").symlink_to("conf/my.yaml")
    assert main(["init", "my.yaml", *LANGUAGES, *ALL, "--minutes", "1"]) == 0
    assert Path("my.yaml").is_symlink()
    assert load_config("conf/my.yaml").name == "my"
    capsys.readouterr()
    assert main(["init", "-", *LANGUAGES, *ALL, "--minutes", "1"]) == 2
    assert "-: standard output cannot receive this output" in capsys.readouterr().err


def test_statistics_cover_the_complete_text() -> None:
    lines = [("one two three", "एक दोन"), (" ", "blank"), ("four", "चार पाच"), ("six", "सहा सात")]
    facts = measure_text(iter(lines), "it")
    assert (facts.pairs, facts.words) == (3, (5 / 3, 2.0))
    assert facts.scripts == ("LATIN", "DEVANAGARI")
    assert not facts.same_script
    src, tgt = (set("".join(pair[side] for pair in lines if pair[0].strip())) for side in (0, 1))
    assert facts.characters == (len(src), len(tgt), len(src | tgt))


def test_every_pair_is_equally_likely_to_be_in_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "SAMPLE", 50)
    counts = [0] * 10
    for start in range(40):
        pairs = [(f"a{n}", f"{start} {n}") for n in range(200)]
        sample = measure_text(pairs, "it").sample
        assert len(set(sample.src)) == 50
        for src, tgt in zip(sample.src, sample.tgt, strict=True):
            assert tgt == f"{start} {src[1:]}"
            counts[int(src[1:]) // 20] += 1
        monkeypatch.setattr(recipe, "_SEED", start)
    assert sum(counts) == 2000
    assert all(
        150 < count < 250 for count in counts
    )  # expected 200, with a standard deviation of 13


@pytest.fixture
def facts() -> Iterator[TextFacts]:
    src, tgt = toy_pairs(200, seed=1)
    return measure_text(zip(src, tgt, strict=True), "the text")


@pytest.fixture
def data() -> DataConfig:
    files = {"src": "all.en", "tgt": "all.de"}
    tree = {"src_lang": "en", "tgt_lang": "de", "train": files, "valid": files}
    return DataConfig.model_validate(tree)


def recipe_for(
    monkeypatch: pytest.MonkeyPatch,
    facts: TextFacts,
    data: DataConfig,
    minutes: float | None,
    epoch_seconds: float,
) -> Recipe:
    """Choose for a machine that needs this time for an epoch of the sample."""
    cost = COST._replace(epoch_seconds=epoch_seconds, **COST_STEPS)
    monkeypatch.setattr(recipe, "forecast", lambda _session: cost)
    return choose(facts, data, minutes, CPU)


def test_much_time_gives_a_deep_model_and_a_limit_of_epochs(
    monkeypatch: pytest.MonkeyPatch, facts: TextFacts, data: DataConfig
) -> None:
    sizes = [sizes._replace(steps=0) for sizes in recipe._SIZES]
    monkeypatch.setattr(recipe, "_SIZES", sizes)
    chosen_recipe = recipe_for(monkeypatch, facts, data, 60, 1.0)
    assert chosen_recipe.sections["model"]["layers"] == 2
    assert chosen_recipe.sections["training"]["max_epochs"] == 40
    assert "max_minutes" not in chosen_recipe.sections["training"]
    assert chosen_recipe.seconds == 40
    assert recipe_for(monkeypatch, facts, data, None, 1000.0).seconds == 40_000
    for minutes, layers in ((4.4, 1), (4.5, 2)):
        chosen_recipe = recipe_for(monkeypatch, facts, data, minutes, 60.0)
        assert (chosen_recipe.epochs, chosen_recipe.sections["model"]["layers"]) == (
            minutes,
            layers,
        )


def test_little_time_gives_a_small_model_and_a_limit_of_minutes(
    monkeypatch: pytest.MonkeyPatch, facts: TextFacts, data: DataConfig
) -> None:
    sizes = [sizes._replace(steps=0) for sizes in recipe._SIZES]
    monkeypatch.setattr(recipe, "_SIZES", sizes)
    chosen_recipe = recipe_for(monkeypatch, facts, data, 1, 50.0)
    model = chosen_recipe.sections["model"]
    training = chosen_recipe.sections["training"]
    assert (model["hidden_size"], model["layers"], model["dropout"]) == (320, 1, 0.1)
    assert (training["max_minutes"], training.get("max_epochs")) == (1, None)
    assert chosen_recipe.epochs == pytest.approx(1.2)
    assert training["validate_every"] == 2  # 12 steps in total


@pytest.mark.parametrize(
    ("steps_per_epoch", "hidden", "layers"),
    [(63, 512, 2), (62, 512, 1), (25, 512, 1), (24, 320, 1), (18, 320, 1), (17, 256, 1)],
)
def test_few_steps_give_a_small_model(
    monkeypatch: pytest.MonkeyPatch,
    facts: TextFacts,
    data: DataConfig,
    steps_per_epoch: int,
    hidden: int,
    layers: int,
) -> None:
    monkeypatch.setitem(COST_STEPS, "steps_per_epoch", steps_per_epoch)
    model = recipe_for(monkeypatch, facts, data, None, 1.0).sections["model"]  # for 40 epochs
    assert (model["hidden_size"], model["layers"]) == (hidden, layers)


@pytest.mark.parametrize("pairs", [50, 200, 3000])
def test_few_pairs_have_enough_steps(
    monkeypatch: pytest.MonkeyPatch, facts: TextFacts, data: DataConfig, pairs: int
) -> None:
    sample = ParallelText(facts.sample.src[:pairs], facts.sample.tgt[:pairs], "the text")
    small_facts = facts._replace(pairs=pairs, sample=sample)
    chosen_recipe = recipe_for(monkeypatch, small_facts, data, None, 1.0)
    vocabularies = recipe._vocabulary(small_facts)[1]
    tokens = sum(len(ids) + 1 for ids in vocabularies.tgt.encode(sample.tgt))
    batch_tokens = chosen_recipe.sections["training"]["batch_tokens"]
    assert isinstance(batch_tokens, int)
    steps = chosen_recipe.epochs * tokens * pairs / len(sample) / batch_tokens
    assert steps > FEW_STEPS


def test_little_time_gives_small_batches(
    monkeypatch: pytest.MonkeyPatch, facts: TextFacts, data: DataConfig
) -> None:
    def cost(session: TrainingSession) -> Forecast:
        steps = 600 // session.config.training.batch_tokens
        return COST._replace(epoch_seconds=0.2, steps_per_epoch=steps)

    monkeypatch.setattr(recipe, "forecast", cost)
    chosen_recipe = choose(facts._replace(pairs=100 * facts.pairs), data, 1, CPU)  # three epochs
    assert chosen_recipe.sections["model"]["hidden_size"] == 256
    assert chosen_recipe.sections["training"]["batch_tokens"] == 250  # 600 steps; 500 tokens: 300
    assert chosen_recipe.epochs * chosen_recipe.cost.steps_per_epoch == 600


def test_a_larger_text_has_a_larger_vocabulary_and_fewer_epochs(
    monkeypatch: pytest.MonkeyPatch, facts: TextFacts, data: DataConfig
) -> None:
    vocabularies = recipe._vocabulary(facts)[1]
    sizes = []
    epochs = []

    def train(config: VocabularyConfig, *_text: object) -> Vocabularies:
        sizes.append(config.size)
        return vocabularies

    monkeypatch.setattr(recipe, "train_vocabularies", train)
    for pairs in (4000, 40_000, 400_000, 40_000_000):
        chosen_recipe = recipe_for(monkeypatch, facts._replace(pairs=pairs), data, None, 1.0)
        epochs.append(chosen_recipe.epochs)
    assert sizes == [1900, 4000, 8600, 32_000]
    assert epochs == [34, 12, 4, 2]


def test_scripts_are_named_in_the_reason_for_a_separate_vocabulary(
    monkeypatch: pytest.MonkeyPatch, facts: TextFacts, data: DataConfig
) -> None:
    english_japanese = facts._replace(scripts=("LATIN", "CJK"))
    chosen_recipe = recipe_for(monkeypatch, english_japanese, data, None, 1.0)
    assert chosen_recipe.sections["vocabulary"]["joint"] is False
    assert chosen_recipe.reasons["vocabulary.joint"] == "two scripts: Latin and CJK"


@pytest.mark.parametrize(
    ("hours", "command"), [("0.4", "distill-train my.yaml --hours 0.4"), ("0.001", "train my.yaml")]
)
@pytest.mark.usefixtures("folder", "_measured")
def test_hours_name_the_command_that_they_allow(
    hours: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An epoch takes a second: a fifth of 24 minutes is enough for its plain training."""
    assert main(["init", "my.yaml", *LANGUAGES, *ALL, "--hours", hours]) == 0
    assert f"Train:     seq2seq {command}\n" in capsys.readouterr().out
    assert f"#   seq2seq {command}\n" in Path("my.yaml").read_text("utf-8")
    minutes = load_config("my.yaml").training.max_minutes
    assert minutes is None if "distill" in command else minutes == pytest.approx(0.06)

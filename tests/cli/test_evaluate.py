"""Scores of runs and outputs on the command line."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from cases.commands import Call, Result, refused
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER


@pytest.fixture
def texts(src_file: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Return a partially correct hypothesis for each line of `src_file`, and the references."""
    hyp = tmp_path / "hyp"
    ref = src_file.with_suffix(".tgt")
    lines = [
        f"{line} {line[:2]} u" if i % 3 else line.replace("a", "o").title()
        for i, line in enumerate(lines_of(ref))
    ]
    hyp.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return hyp, ref


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def sacrebleu_scores(hyp: Path, *refs: Path) -> list[float]:
    """Compute the scores with sacrebleu alone."""
    references = [lines_of(ref) for ref in refs]
    metrics = (BLEU(), CHRF(), TER(case_sensitive=True))
    return [metric.corpus_score(lines_of(hyp), references).score for metric in metrics]


def table_scores(result: Result) -> list[str]:
    """Return the scores of the first three rows below the header."""
    assert result.code == 0, result.err
    rows = [line.split() for line in result.lines[1:4]]
    assert [row[0] for row in rows] == ["BLEU", "chrF2", "TER"]
    return [row[1] for row in rows]


def test_a_run_is_scored_as_sacrebleu_scores_its_output(
    call: Call, luong: Path, src_file: Path, tmp_path: Path
) -> None:
    ref = src_file.with_suffix(".tgt")
    output = tmp_path / "kept"
    result = call("evaluate", "-m", luong, "-i", src_file, "-r", ref, "-o", output)
    assert output.read_bytes() == call("translate", "-m", luong, "-i", src_file).out
    scores = sacrebleu_scores(output, ref)
    assert table_scores(result) == [f"{score:.1f}" for score in scores]
    assert "nrefs:1|" in result.out.decode()
    assert call("evaluate", "--hyp", output, "-r", ref) == result


def test_references_not_in_nfc_are_noted_and_scored_unchanged(
    call: Call, luong: Path, tmp_path: Path
) -> None:
    src_file, ref, hyp = (tmp_path / name for name in ("a.src", "a.ref", "a.hyp"))
    src_file.write_text("zu ba ki.\n" * 3, encoding="utf-8")
    call("translate", "-m", luong, "-i", src_file, "-o", hyp)
    (words, *_) = lines_of(hyp)
    ref.write_text(f"{words}\n{words} e\u0301\n\u0958 {words}\n", encoding="utf-8")
    result = call("evaluate", "-m", luong, "-i", src_file, "-r", ref, "--json", "-")
    assert f"note: {ref}: 2 of 3 lines are not in Unicode's NFC" in result.err
    by_hand = sacrebleu_scores(hyp, ref)[0]
    assert json.loads(result.out)["bleu"]["score"] == pytest.approx(by_hand)
    ref.write_text(f"{words}\n" * 3, encoding="utf-8")
    assert "NFC" not in call("evaluate", "-m", luong, "-i", src_file, "-r", ref).err
    assert "NFC" not in call("evaluate", "--hyp", hyp, "-r", ref).err
    hyp.write_text("ba \u00e9 ka mo zu\n" * 3, encoding="utf-8")
    ref.write_text("ba e\u0301 ka mo zu\n" * 3, encoding="utf-8")  # renders identically
    result = call("evaluate", "--hyp", hyp, "-r", ref, "--json", "-")
    score = json.loads(result.out)["bleu"]["score"]
    assert score == pytest.approx(sacrebleu_scores(hyp, ref)[0])
    assert score < 50


def enlarge(*files: Path) -> None:
    """Repeat the lines of files to get enough for intervals and p-values."""
    for file in files:
        file.write_bytes(file.read_bytes() * 3)


def test_scores_are_written_as_json(call: Call, texts: tuple[Path, Path], tmp_path: Path) -> None:
    hyp, ref = texts
    few_lines = call("evaluate", "--hyp", hyp, "--hyp", ref, "-r", ref, "--json", tmp_path / "few")
    assert "note: no intervals and p-values for fewer than 20 lines (here: 11)" in few_lines.err
    assert few_lines.lines[1].split()[2] == "-"
    for system in json.loads((tmp_path / "few").read_bytes())["systems"]:
        assert (system["bleu"]["p_value"], system["bleu"]["ci"]) == (None, None)
    enlarge(hyp, ref)
    scores = sacrebleu_scores(hyp, ref)
    assert 5 < scores[0] < 95
    printed = call("evaluate", "--hyp", hyp, "-r", ref, "--json", "-")
    tree = json.loads(printed.out)
    assert list(tree) == ["bleu", "chrf", "ter"]
    assert [entry["score"] for entry in tree.values()] == pytest.approx(scores)
    for entry in tree.values():
        low, high = entry["ci"]
        assert low < high
        assert "version:" in entry["signature"]
    result = call("evaluate", "--hyp", hyp, "-r", ref, "--json", tmp_path / "scores.json")
    assert json.loads((tmp_path / "scores.json").read_text(encoding="utf-8")) == tree
    assert table_scores(result) == [f"{entry['score']:.1f}" for entry in tree.values()]


def test_outputs_are_compared_with_the_first_by_their_names(
    call: Call, texts: tuple[Path, Path], tmp_path: Path
) -> None:
    hyp, ref = texts
    enlarge(hyp, ref)
    better = tmp_path / "better"
    best = tmp_path / "best"

    def write(path: Path, right: int) -> None:
        lines = [*lines_of(ref)[:right], *lines_of(hyp)[right:]]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")

    write(better, 28)
    write(best, 33)
    names = [hyp, better, best]
    options = [word for name in names for word in ("--hyp", name)]
    result = call("evaluate", *options, "-r", ref, "--json", tmp_path / "json")
    assert result.code == 0, result.err
    scores_of_systems = [sacrebleu_scores(path, ref) for path in names]
    for place, metric in enumerate(("BLEU", "chrF2", "TER")):
        start = next(n for n, line in enumerate(result.lines) if line.startswith(f"{metric} "))
        rows = [line.split() for line in result.lines[start + 1 : start + 4]]
        assert [row[0] for row in rows] == [str(name) for name in names]
        assert [row[1] for row in rows] == [f"{scores[place]:.1f}" for scores in scores_of_systems]
    assert f"p: of the difference from {hyp}, " in result.out.decode()
    systems = json.loads((tmp_path / "json").read_text(encoding="utf-8"))["systems"]
    assert [system["name"] for system in systems] == [str(name) for name in names]
    for system, scores in zip(systems, scores_of_systems, strict=True):
        scores_in_json = [system[key]["score"] for key in ("bleu", "chrf", "ter")]
        assert scores_in_json == pytest.approx(scores)
    p_values = [system["bleu"]["p_value"] for system in systems]
    assert p_values[0] is None
    assert 0 < p_values[1] < 0.2
    write(better, 9)
    result = call("evaluate", *options, "-r", ref, "--json", tmp_path / "json")
    untested = "no p-value of BLEU, chrF2 and TER: the systems differ in fewer than 20 lines\n"
    assert f"note: {better}: {untested}" in result.err
    tree = json.loads((tmp_path / "json").read_text(encoding="utf-8"))
    assert tree["systems"][1]["bleu"]["p_value"] is None


def test_hypotheses_are_text_and_references_count_once(
    call: Call, texts: tuple[Path, Path], tmp_path: Path
) -> None:
    hyp, ref = texts
    table = tmp_path / "hyp.tsv"
    table.write_text("a\tb\n", encoding="utf-8")
    result = call("evaluate", "--hyp", table, "-r", table)
    assert result.code == 2
    assert f"{table}: is a table; give a file with one sentence per line" in result.err
    result = call("evaluate", "--hyp", hyp, "-r", ref, "-r", ref)
    assert result.code == 2
    assert f"evaluate -r: {ref} is given twice" in result.err


def test_text_without_spaces_and_long_lines_give_notes(call: Call, tmp_path: Path) -> None:
    hyp = tmp_path / "hyp"
    ref = tmp_path / "ref"
    for file in (hyp, ref):
        file.write_text(
            "\u5f7c\u306f\u6628\u65e5\u672c\u3092\u8cb7\u3044\u307e\u3057\u305f\n" * 2, "utf-8"
        )
    result = call("evaluate", "--hyp", hyp, "-r", ref)
    assert table_scores(result) == ["100.0", "100.0", "0.0"]
    signatures = [line.split()[1] for line in result.lines if "  nrefs:" in line]
    assert "|tok:char|" in signatures[0]
    assert "|norm:yes|punct:yes|asian:yes|" in signatures[2]
    assert "references are in Japanese script" in result.err
    for file in (hyp, ref):
        file.write_text("a b c d " * 800 + "\n", "utf-8")
    result = call("evaluate", "--hyp", hyp, "--hyp", hyp, "-r", ref, "--json", tmp_path / "json")
    assert not any(line.startswith("TER") for line in result.lines)
    assert f"note: {hyp}:1: the line has 3,200 words; TER" in result.err
    tree = json.loads((tmp_path / "json").read_bytes())
    assert [system["ter"] for system in tree["systems"]] == [None, None]


def test_lowercase_and_several_references_are_supported(
    call: Call, texts: tuple[Path, Path], tmp_path: Path
) -> None:
    hyp, ref = texts
    upper = tmp_path / "upper"
    upper.write_text(hyp.read_text(encoding="utf-8").upper(), encoding="utf-8", newline="\n")
    lowercase = call("evaluate", "--hyp", hyp, "-r", upper, "--lowercase")
    assert table_scores(lowercase) == ["100.0", "100.0", "0.0"]
    cased = table_scores(call("evaluate", "--hyp", hyp, "-r", upper))
    assert float(cased[0]) < 90
    two = call("evaluate", "--hyp", hyp, "-r", ref, "-r", upper)
    assert table_scores(two) == [f"{score:.1f}" for score in sacrebleu_scores(hyp, ref, upper)]


def test_the_test_set_defaults_to_that_of_the_config(
    call: Call, luong: Path, src_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(src_file.parent)  # files from elsewhere are named
    run = tmp_path / "with-test"
    shutil.copytree(luong, run)
    refused(call("evaluate", "-m", run), run, "data.test", "-i FILE")
    tree = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    tree["data"]["test"] = {"src": str(src_file), "tgt": str(src_file.with_suffix(".tgt"))}
    (run / "config.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    result = call("evaluate", "-m", run, "-o", tmp_path / "hyp")
    with_test_set = call("evaluate", "-m", run, "-i", src_file, "-r", src_file.with_suffix(".tgt"))
    assert result == with_test_set
    scores = sacrebleu_scores(tmp_path / "hyp", src_file.with_suffix(".tgt"))
    assert table_scores(result) == [f"{score:.1f}" for score in scores]


def test_the_validation_text_can_be_scored(
    call: Call, luong: Path, src_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(src_file.parent)  # files from elsewhere are named
    run = tmp_path / "with-valid"
    valid = src_file.with_name("valid.src")
    shutil.copytree(luong, run)
    tree = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    tree["data"]["valid"] = {"src": str(valid), "tgt": str(valid.with_suffix(".tgt"))}
    (run / "config.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    result = call("evaluate", "-m", run, "--split", "valid")
    assert result.code == 0
    assert result == call("evaluate", "-m", run, "-i", valid, "-r", valid.with_suffix(".tgt"))
    refused(
        call("evaluate", "--hyp", src_file, "-r", src_file, "--split", "valid"),
        "--split valid cannot",
    )


def test_sentences_are_listed_worst_first(
    call: Call, texts: tuple[Path, Path], tmp_path: Path
) -> None:
    hyp, ref = texts
    lines = lines_of(hyp)
    lines[2:4] = ["", f"{lines_of(ref)[3]}\tx"]
    hyp.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    table = tmp_path / "sentences.tsv"
    plain = call("evaluate", "--hyp", hyp, "-r", ref)
    assert call("evaluate", "--hyp", hyp, "-r", ref, "--sentences", table) == plain
    head, *rows = [line.split("\t") for line in lines_of(table)]
    assert head == ["line", "BLEU", "chrF2", "hypothesis", "reference"]
    assert sorted(int(row[0]) for row in rows) == list(range(1, 12))
    assert [float(row[1]) for row in rows] == sorted(float(row[1]) for row in rows)
    assert rows[0][:2] == ["3", "0.0"]
    bleu = BLEU(effective_order=True)
    chrf = CHRF()
    for number, own_bleu, own_chrf, hypothesis, reference in rows:
        line = lines[int(number) - 1]
        references = [lines_of(ref)[int(number) - 1]]
        assert (hypothesis, reference) == (line.replace("\t", " "), references[0])
        assert own_bleu == f"{bleu.sentence_score(line, references).score:.1f}"
        assert own_chrf == f"{chrf.sentence_score(line, references).score:.1f}"


def test_sentences_of_a_run_have_their_sources(
    call: Call, luong: Path, src_file: Path, tmp_path: Path
) -> None:
    table = tmp_path / "sentences.tsv"
    out = tmp_path / "out"
    ref = src_file.with_suffix(".tgt")
    second_ref = tmp_path / "other"
    second_ref.write_bytes(ref.read_bytes())
    options = ("-i", src_file, "-r", ref, "-r", second_ref, "-o", out, "--sentences", table)
    assert call("evaluate", "-m", luong, *options).code == 0
    head, *rows = [line.split("\t") for line in lines_of(table)]
    assert head[3:] == ["source", "hypothesis", "reference 1", "reference 2"]
    for number, _, _, *row in rows:
        index = int(number) - 1
        expected_row = [
            lines_of(path)[index].replace("\t", " ") for path in (src_file, out, ref, ref)
        ]
        assert row == expected_row


def test_sentences_of_only_one_system_are_listed(call: Call, texts: tuple[Path, Path]) -> None:
    hyp, ref = texts
    result = call("evaluate", "--hyp", hyp, "--hyp", ref, "-r", ref, "--sentences", "x")
    refused(result, "--sentences: give one --hyp file")
    refused(call("evaluate", "--hyp", hyp, "-r", ref, "--sentences", "-"), "standard output")
    refused(call("evaluate", "--hyp", hyp, "-r", ref, "--sentences", ref), "is already read")


def test_unequal_counts_are_refused(
    call: Call, luong: Path, src_file: Path, texts: tuple[Path, Path], tmp_path: Path
) -> None:
    hyp, ref = texts
    ref.write_text("".join(f"{line}\n" for line in lines_of(ref)[:-1]), encoding="utf-8")
    for how in (("--hyp", hyp), ("-m", luong, "-i", src_file, "-o", tmp_path / "out")):
        refused(call("evaluate", *how, "-r", ref), "has 11 lines but", ref, "has 10")
    assert not (tmp_path / "out").exists()

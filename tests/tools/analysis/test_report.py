"""`seq2seq report`: the page, its charts, and incomplete runs."""

import contextlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from cases.toy_text import write_small_corpus

from seq2seq.__main__ import main
from seq2seq.evaluation.metrics import SentenceScore
from seq2seq.tools.analysis.report.facts import ScoredSentence, SplitScores, shown
from seq2seq.tools.analysis.report.page import _marked, _scores
from seq2seq.tools.analysis.scored_text import WORDS, score_text
from seq2seq.tools.distillation.plan import Outline
from seq2seq.tools.distillation.record import Record

SHORT = ("training.max_steps=12", "training.validate_every=4", "training.log_every=2")
VOID = {"meta", "br", "img", "input", "link", "hr"}


class Balanced(HTMLParser):
    """HTML parser that fails if a tag is unclosed or closed without being open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(path: Path) -> tuple[str, set[str]]:
    """Return the page and its tags; check that it is well-formed, without scripts and resources."""
    text = path.read_text(encoding="utf-8")
    parser = Balanced()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    assert parser.addresses == []
    assert not parser.tags & {"script", "iframe", "object", "img", "link", "b"}
    assert not re.search(r"url\((?!#)", text)
    for svg in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        ElementTree.fromstring(svg)
    return text, parser.tags


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a run on a small corpus; return their folder, which tests must not change."""
    folder = tmp_path_factory.mktemp("report")
    config = write_small_corpus(folder)
    assert main(["train", str(config), *SHORT]) == 0
    return folder


def report(folder: Path, *words: str) -> int:
    with contextlib.chdir(folder):  # text of the current folder is quoted
        return main(["report", str(folder / "run"), *words, "--device", "cpu"])


def test_the_page_has_the_scores_of_evaluate(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.html"
    assert report(trained, "-b", "2", "-o", str(path)) == 0
    assert f"Open {path} in a browser." in capsys.readouterr().err
    scores = ["--json", str(tmp_path / "scores.json"), "--sentences", str(tmp_path / "s.tsv")]
    assert main(["evaluate", "-m", str(trained / "run"), "-b", "2", *scores]) == 0
    text, tags = checked(path)
    for system in json.loads((tmp_path / "scores.json").read_text()).values():
        assert f"<td>{system['score']:.1f}</td>" in text
        assert system["signature"] in text
    lines = (tmp_path / "s.tsv").read_text(encoding="utf-8").splitlines()[1:]
    of_line = {line.split("\t")[0]: line.split("\t")[1:3] for line in lines}
    worst_lines = re.findall(r"<h3>Line (\d+): BLEU ([\d.]+), chrF2 ([\d.]+)", text)
    assert len(worst_lines) == len({number for number, *_ in worst_lines}) == 5
    assert all(of_line[number] == scores for number, *scores in worst_lines)
    assert [float(chrf) for *_, chrf in worst_lines] == sorted(
        float(chrf) for *_, chrf in worst_lines
    )
    assert "11 sentences of the test text, beam size 2." in text
    assert {"svg", "details", "pre"} <= tags
    assert text.count("<details>") == 6  # attention of the worst sentences, and all keys
    assert "hidden_size: 20" in text
    assert '<th scope="row">model.hidden_size</th><td>20</td>' in text
    assert '<th scope="row">model.encoder</th>' not in text  # as by default
    assert re.search(r'<th scope="row">trained</th><td>\d{4}-\d\d-\d\d \d\d:\d\d to ', text)
    assert '<th scope="row">trained on</th><td>cpu' in text
    steps = re.findall(r"<dt>step (\d+)</dt>", text.partition("<h2>Samples over training</h2>")[2])
    assert steps == ["4", "8", "12"] * (len(steps) // 3)
    assert steps
    assert str(trained) not in text  # no paths of this machine


def test_text_from_elsewhere_is_quoted_only_on_request(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(trained / "run")
    sentence = (trained / "test.src").read_text("utf-8").splitlines()[0]
    pages = []
    for words in ((), ("--quote-outside",)):
        with contextlib.chdir(tmp_path):
            assert main(["report", run, "-o", "page.html", "--device", "cpu", *words]) == 0
        pages.append((tmp_path / "page.html").read_text("utf-8"))
        errors = capsys.readouterr().err
        for side in ("src", "tgt"):
            assert f"note: reads {trained / 'test'}.{side}, which the config of {run}" in errors
        assert ("--quote-outside shows its sentences" in errors) == (not words)
        assert errors.endswith("\nOpen page.html in a browser.\n")
    assert ["<h2>Worst sentences</h2>" in page for page in pages] == [False, True]
    assert all("11 sentences of the test text" in page for page in pages)
    assert sentence not in pages[0]


def test_words_that_differ_are_marked() -> None:
    assert _marked("a blue <car> is", "a red <car> was") == (
        "a <mark>blue</mark> &lt;car&gt; <mark>is</mark>"
    )
    assert (
        _marked("\u6211\u4eec\u559c\u6b22", "\u6211\u559c\u6b22")
        == "\u6211<mark>\u4eec</mark>\u559c\u6b22"
    )
    assert _marked("", "a") == ""


def test_short_sentences_are_not_among_the_worst() -> None:
    score = SentenceScore(0.0, 0.0)
    lines = [ScoredSentence(n, "w " * (n % 16), "r", "t", score) for n in range(1, 40)]
    assert {line.number % 16 for line in shown(lines, WORDS)} == set(range(8, 16))
    assert shown(lines[:12], WORDS) == lines[7:12]
    assert shown(lines[:9], WORDS) == lines[:9]  # too few long ones


def test_two_runs_are_side_by_side(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "run", tmp_path / "other")
    config = tmp_path / "other" / "config.yaml"
    tree = yaml.safe_load(config.read_text(encoding="utf-8"))
    beam = tree["decoding"]["beam_size"]
    tree["decoding"]["beam_size"] = beam + 1
    config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    path = tmp_path / "both.html"
    assert report(trained, str(tmp_path / "other"), "-o", str(path)) == 0
    text, _ = checked(path)
    first, second = str(trained / "run"), str(tmp_path / "other")  # both runs are called small
    assert f"<h1>{first} and {second}</h1>" in text
    sections = text.partition("<h2>Samples over training")[0].split("<h2>Better in ")[1:]
    assert len(sections) == 2
    for place, section in enumerate(sections):
        scores = [float(score) for score in re.findall(r", chrF2 ([\d.]+)</dt>", section)]
        gains = [first - second for first, second in zip(scores[::2], scores[1::2], strict=True)]
        assert all(gain <= 0 if place else gain >= 0 for gain in gains)  # 0 where rounded
        count = int(re.findall(r"<p>(\d+) sentences?, by chrF2", section)[0])
        assert len(gains) == min(5, count)
        beside = section.split('<div class="beside">')[1:]  # the maps of each sentence
        assert len(beside) == len(gains)
        assert all(part.count('<table class="attention-map">') == 2 for part in beside)
        assert all(re.findall("<p>(.*?)</p>", part)[:2] == [first, second] for part in beside)
    assert f"beam size {beam} and {beam + 1}." in text
    assert '<th scope="row">BLEU</th>' in text
    note = "No intervals and p-values for fewer than 20 lines (here: 11)."
    assert f"by the paired bootstrap. {note}</p>" in text
    (row,) = re.findall("<tr class=differs>.*?</tr>", text.partition("<h2>Config</h2>")[2])
    assert '<th scope="row">decoding.beam_size</th>' in row
    assert row.endswith(f"<td>{beam + 1}</td></tr>")


def test_a_distilled_run_shows_its_steps_and_scores(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    run = tmp_path / "run"
    record = Record.begin(run, {}, Outline(), {})
    for name, seconds, finished in (("plain", 83.0, True), ("back", 5.0, False)):
        entry = {
            "command": ["seq2seq", "train", "x.yaml"],
            "seconds": seconds,
            "finished": finished,
        }
        record.tree["steps"][name] = entry
    scores = {"plain": {"bleu": 24.0, "chrf": 45.04}, "<i>": {"bleu": 25.5, "chrf": 46.0}}
    record.finish("<i>", scores, stopped_early=False)
    assert report(tmp_path) == 0
    text, _ = checked(run / "report.html")
    section = text.partition("<h2>Distillation</h2>")[2].partition("<h2>Config")[0]
    rows = [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in section.split("<tr>")[1:]]
    assert rows == [
        ["step", "command", "time"],
        ["plain", "seq2seq train", "1 min"],
        ["back", "seq2seq train", "not finished"],
        ["validation text", "BLEU", "chrF2"],
        ["plain", "24.0", "45.0"],
        ["&lt;i&gt; (this run)", "25.5", "46.0"],
    ]
    (run / "distillation.json").write_text("{}", encoding="utf-8")
    capsys.readouterr()
    assert report(tmp_path) == 2
    assert "Pass --overwrite to distill-train to begin again" in capsys.readouterr().err


@pytest.mark.parametrize("differing", [3, 25])
def test_the_page_of_two_runs_says_why_it_has_no_p(differing: int) -> None:
    references = [f"The {number} cats sleep in the old house today." for number in range(30)]
    better = [line.replace("sleep", "run") for line in references]
    worse = [line.replace("cats", "dogs") for line in better[:differing]] + better[differing:]

    def scored(lines: list[str]) -> SplitScores:
        text = score_text(lines, references, "en", bootstrap=0)
        values = text.scores, text.segmentation, WORDS, [], [], []
        return SplitScores("test", 5, *values, references, lines, [], None)

    html = _scores([scored(better), scored(worse)], ["better", "worse"])
    reason = "No p-value of BLEU, chrF2 and TER: the systems differ in fewer than 20 lines."
    assert (reason in html) == (differing < 20)
    assert ("<td>-</td></tr>" in html) == (differing < 20)


def test_runs_with_different_texts_are_not_compared(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained / "run", tmp_path / "other")
    config = tmp_path / "other" / "config.yaml"
    tree = yaml.safe_load(config.read_text(encoding="utf-8"))
    tree["data"]["test"] = dict(tree["data"]["valid"])
    config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    path = tmp_path / "both.html"
    assert report(trained, str(tmp_path / "other"), "-b", "1", "-o", str(path)) == 2
    assert "has another test text than" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.thorough
def test_damaged_figures_are_left_out(trained: Path, tmp_path: Path) -> None:
    """Each value in turn is one that no training writes."""
    values = '[1]|{"a": 2}|"x"|null|true|NaN|-Infinity|1e999|1e308|-1|1e4000' + f"|{10**400}|[[[]]]"
    shutil.copytree(trained, tmp_path / "copy")
    folder = tmp_path / "copy"
    keys = {
        "metrics.jsonl": ("step", "train_loss", "valid_loss", "valid_bleu", "learning_rate"),
        "timing.jsonl": ("step", "seconds", "target_tokens_per_second"),
    }
    for name, figures in keys.items():
        path = folder / "run" / name
        lines = path.read_text(encoding="utf-8").splitlines()
        fields = dict.fromkeys(figures, "1")
        for key in figures:
            for value in values.split("|"):
                pairs = (fields | {key: value}).items()
                lines.append("{" + ", ".join(f'"{field}": {text}' for field, text in pairs) + "}")
        path.write_text("\n".join([*lines, "[]", "7", '"step"', "{}", "{"]), encoding="utf-8")
    assert report(folder, "-b", "1") == 0
    text, _ = checked(folder / "run" / "report.html")
    assert "Validation scores, greedy search" in text


@pytest.mark.thorough
def test_a_run_without_attention_test_set_and_metrics_has_a_page(
    small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = small_corpus.parent
    values = ("model.decoder=none", "data.test=null")
    assert main(["train", str(small_corpus), *SHORT, *values]) == 0
    for name in ("metrics.jsonl", "timing.jsonl"):
        (folder / "run" / name).unlink()
    assert report(folder, "-b", "1") == 0
    text, _ = checked(folder / "run" / "report.html")
    assert "9 sentences of the valid text, beam size 1." in text
    assert "This text has chosen the best weights" in text
    assert "<summary>attention</summary>" not in text
    assert "No figures of training yet." in text
    capsys.readouterr()
    assert report(folder, "--split", "test") == 2
    assert "its config has no data.test; choose --split valid" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_run_whose_texts_are_missing_has_a_page_without_scores(
    small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = small_corpus.parent
    assert main(["train", str(small_corpus), *SHORT]) == 0
    for path in folder.glob("t*.src"):
        path.unlink()
    capsys.readouterr()
    assert report(folder) == 0
    err = capsys.readouterr().err
    assert "note: no scores: " in err
    text, _ = checked(folder / "run" / "report.html")
    assert "No scores: " in text
    (folder / "run" / "best.safetensors").unlink()
    capsys.readouterr()
    assert report(folder) == 2
    assert (
        "which the first validation writes. last.safetensors is intact" in capsys.readouterr().err
    )


@pytest.mark.thorough
def test_names_and_texts_are_escaped(small_corpus: Path) -> None:
    folder = small_corpus.parent
    name = "<script>alert(1)</script> & `x` | [y](z)"
    config = small_corpus.read_text(encoding="utf-8").replace("name: small", f"name: {name!r}")
    small_corpus.write_text(config, encoding="utf-8")
    for side in ("src", "tgt"):
        path = folder / f"test.{side}"
        lines = path.read_text(encoding="utf-8").splitlines()
        lines = [f'</dd><b onclick="x">{line}\u202e\x1b[31m' for line in lines]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert main(["train", str(small_corpus), *SHORT]) == 0
    assert report(folder, "-b", "1") == 0
    text, _ = checked(folder / "run" / "report.html")
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp;" in text
    assert not re.search("[\x1b\u202e]", text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere"),
        (["run", "-o", "page.pdf"], "page.pdf: the report is an HTML page; give -o FILE.html"),
        (["run", "-o", "-"], "-: the report is an HTML page; give -o FILE.html"),
        (["run", "-o", "no/page.html"], "no/page.html: there is no folder no; create it first"),
        (["run", "run"], "report RUN RUN2: needs -o FILE.html, a page of both"),
        (["run", "run", "-o", "a.html"], "run: is the first run again; name another"),
        (["run", "-b", "0"], "argument -b/--beam: must be an integer of at least 1"),
        ([], "the following arguments are required: RUN"),
    ],
)
def test_invalid_arguments_are_refused(
    trained: Path,
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(trained)
    assert main(["report", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"seq2seq: error: {message}")
    assert err.count("\n") == 1


def test_lengths_are_in_characters_where_words_have_no_spaces(
    trained: Path, tmp_path: Path
) -> None:
    lines = [["我喜歡你。", "我 喜歡。", "好"], ["I like you .", "I like it .", "good"]]
    for side, text in zip(("src", "tgt"), lines, strict=True):
        (tmp_path / f"new.{side}").write_text("\n".join(text), encoding="utf-8")
    files = f"{{src: {tmp_path}/new.src, tgt: {tmp_path}/new.tgt}}"
    shutil.copytree(trained / "run", tmp_path / "run")
    config = tmp_path / "run" / "config.yaml"
    tree = yaml.safe_load(config.read_text(encoding="utf-8"))
    tree["data"]["test"] = yaml.safe_load(files)
    config.write_text(yaml.safe_dump(tree, allow_unicode=True), encoding="utf-8")
    assert report(tmp_path, "-b", "1") == 0
    text, _ = checked(tmp_path / "run" / "report.html")
    assert "characters of the source, and number of sentences" in text
    assert "words of the source" not in text

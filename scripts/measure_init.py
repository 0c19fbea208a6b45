"""Compare configs of `seq2seq init` with configs by hand and with bare defaults at equal minutes.

    python scripts/measure_init.py DATA -o FOLDER --minutes 3
    python scripts/measure_init.py DATA -o FOLDER --pairs 1000 3000 --sides init --jobs 1

DATA has a folder for each corpus: multi30k, anki-eng-mar and anki-eng-deu as `seq2seq download`
writes them, and small-parallel-enja with train and dev of github.com/odashi/small_parallel_enja,
compressed. `--pairs` takes the first pairs of each training text. Each training has one thread; as
many run side by side as there are cores, or `--jobs`, so nothing else should. FOLDER receives the
configs, run folders and `scores.json`; existing scores are kept: a second call extends the table,
or repeats what failed.
"""

import argparse
import concurrent.futures
import gzip
import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import NamedTuple

METRICS = {"bleu": "BLEU", "chrf": "chrF2"}
SIDES = ("init", "hand", "bare", "small")


class Corpus(NamedTuple):
    """A corpus: languages, files below DATA, and sections of the config by hand."""

    languages: tuple[str, str]
    train: tuple[str, ...]
    valid: tuple[str, ...]
    vocabulary: str
    batch_tokens: int


CORPORA = {
    "multi30k": Corpus(
        ("en", "de"), ("train.en.gz", "train.de.gz"), ("val.en.gz", "val.de.gz"), "size: 4000", 1500
    ),
    "anki-eng-mar": Corpus(
        ("en", "mr"), ("train.tsv.gz",), ("dev.tsv.gz",), "size: 4000, joint: false", 1000
    ),
    "anki-eng-deu": Corpus(("en", "de"), ("train.tsv.gz",), ("dev.tsv.gz",), "size: 6000", 1500),
    "small-parallel-enja": Corpus(
        ("en", "ja"),
        ("train.en.gz", "train.ja.gz"),
        ("dev.en.gz", "dev.ja.gz"),
        "size: 3500, joint: false",
        1500,
    ),
}
# As configs/multi30k-en-de-fast.yaml, for long trainings with a second layer.
LUONG = "decoder: luong, score: general, input_feeding: true"
SIZES = "embedding_size: 256, hidden_size: 512, dropout: 0.1"
SHORT = f"model: {{{LUONG}, {SIZES}}}"
LONG = f"model: {{{LUONG}, {SIZES}, layers: 2}}"
# For some thousand pairs: half the units, and batches so small that attention has time to form.
SMALL = f"""\
model: {{{{{LUONG}, embedding_size: 128, hidden_size: 256, dropout: 0.3}}}}
training: {{{{batch_tokens: 600, learning_rate: 2e-3, decay: linear, warmup_steps: 100,
  average: 0.99, max_minutes: {{minutes:g}}}}}}"""


def main() -> None:
    """Train and evaluate every cell that has no score, then print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--corpora", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--pairs", nargs="+", type=int, default=[])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "scores.json"
    scores = json.loads(path.read_text("utf-8")) if path.exists() else {}
    texts = [(corpus, pairs) for corpus in options.corpora for pairs in options.pairs or [None]]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        cells = {
            pool.submit(measure, options, text, side): f"{label(text)} {options.minutes:g} {side}"
            for text in texts
            for side in options.sides
            if f"{label(text)} {options.minutes:g} {side}" not in scores
        }
        for cell in concurrent.futures.as_completed(cells):
            if cell.exception() is not None:
                continue  # the others are worth keeping; the error is raised below
            scores[cells[cell]] = cell.result()
            path.write_text(json.dumps(scores, indent=1) + "\n", "utf-8")
            print(cells[cell], scores[cells[cell]], flush=True)
    print_table(scores)
    for cell in cells:
        cell.result()


Text = tuple[str, int | None]  # corpus, and number of its pairs; None: all


def label(text: Text) -> str:
    """Return the name of a text in the table."""
    corpus, pairs = text
    return corpus if pairs is None else f"{corpus}:{pairs}"


def measure(options: argparse.Namespace, text: Text, side: str) -> dict[str, object]:
    """Train by one config and return its validation scores with a beam of 5."""
    name = f"{label(text).replace(':', '-')}-{options.minutes:g}-{side}"
    config, run = options.output / f"{name}.yaml", options.output / "runs" / name
    write_config(options, text, side, config)
    seq2seq("train", config, f"run_dir={run}", "--overwrite")
    report = options.output / f"{name}.json"
    seq2seq("evaluate", "-m", run, "--split", "valid", "-b", "5", "--json", report)
    scores = json.loads(report.read_text("utf-8"))
    return {metric: scores[metric] for metric in ("bleu", "chrf")}


def training_files(options: argparse.Namespace, text: Text) -> list[Path]:
    """Return the files of a training text, cut to its number of pairs."""
    corpus, pairs = text
    files = [options.data / corpus / name for name in CORPORA[corpus].train]
    if pairs is None:
        return files
    folder = options.output / "data" / label(text).replace(":", "-")
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8", newline="\n") as lines:
            content = "".join(islice(lines, pairs))
        (folder / file.name).write_bytes(gzip.compress(content.encode(), mtime=0))
    return [folder / file.name for file in files]


def write_config(options: argparse.Namespace, text: Text, side: str, path: Path) -> None:
    """Write the config of a cell."""
    corpus = CORPORA[text[0]]
    train = [file.as_posix() for file in training_files(options, text)]
    valid = [(options.data / text[0] / name).as_posix() for name in corpus.valid]
    if side == "init":
        languages = ("--src-lang", corpus.languages[0], "--tgt-lang", corpus.languages[1])
        files_given = ("--train", *train, "--valid", *valid)
        seq2seq("init", path, *languages, *files_given, "--minutes", options.minutes, "--overwrite")
        return
    files = [
        f"{{file: {files[0]}}}" if len(files) == 1 else f"{{src: {files[0]}, tgt: {files[1]}}}"
        for files in (train, valid)
    ]
    lines = [
        f"name: {path.stem}",
        f"run_dir: runs/{path.stem}",
        f"data: {{src_lang: {corpus.languages[0]}, tgt_lang: {corpus.languages[1]},"
        f" train: {files[0]}, valid: {files[1]}}}",
    ]
    if side == "bare":
        lines.append(f"training: {{max_minutes: {options.minutes:g}}}")
    elif side == "small":
        lines.append(SMALL.format(minutes=options.minutes))
    else:
        long = options.minutes >= 10
        average = 0.998 if long else 0.99
        lines += [
            f"vocabulary: {{type: unigram, {corpus.vocabulary}}}",
            LONG if long else SHORT,
            f"training: {{batch_tokens: {corpus.batch_tokens}, learning_rate: 2e-3, decay: linear,"
            f" warmup_steps: 200, average: {average}, max_minutes: {options.minutes:g},"
            " precision: bf16}",
        ]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def seq2seq(*arguments: object) -> None:
    """Run a subcommand with one thread; raise CalledProcessError, with its messages, on failure."""
    command = [sys.executable, "-m", "seq2seq", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr)
        done.check_returncode()


def print_table(scores: dict[str, dict[str, dict[str, object]]]) -> None:
    """Print the scores as Markdown: BLEU of each side, chrF2 for Japanese."""
    print("| corpus, minutes | metric | " + " | ".join(SIDES) + " |")
    print("| --- | --- | " + "--- | " * len(SIDES))
    for row in dict.fromkeys(cell.rpartition(" ")[0] for cell in scores):
        metric = "chrf" if "enja" in row else "bleu"
        cells = (scores.get(f"{row} {side}") for side in SIDES)
        values = ("" if cell is None else f"{cell[metric]['score']:.1f}" for cell in cells)
        print(f"| {row.replace(' ', ', ')} | {METRICS[metric]} | " + " | ".join(values) + " |")


if __name__ == "__main__":
    main()

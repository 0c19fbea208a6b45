"""User errors in one table: the situation, the message and the exit code."""

import gzip
import io
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import yaml
from conftest import copy_with_vocabularies, toy_pairs
from safetensors.torch import save_file

from seq2seq.__main__ import main
from seq2seq.data.vocabulary.vocabulary import Vocabularies, Vocabulary
from seq2seq.runs.tensor_file import read_header, read_tensors, save_tensors

CONFIG = """\
name: small
run_dir: run
data:
  src_lang: xx
  tgt_lang: yy
  train: {src: train.src, tgt: train.tgt}
  valid: {src: valid.src, tgt: valid.tgt}
  test: {src: test.src, tgt: test.tgt}
  max_length: 40
vocabulary: {size: 340}
model: {decoder: bahdanau, embedding_size: 12, hidden_size: 20}
training: {max_steps: 1, log_every: 40}
"""
Preparation = Callable[[], object]


class Row(NamedTuple):
    """A call, its message (`...` matches text of other software), and the preparation."""

    call: str
    message: str
    before: Preparation = lambda: None
    code: int = 2


def config_errors(*lines: str) -> str:
    """Return the message about errors in the config."""
    return "\n".join(
        line
        if "(override)" in line
        else f"config.yaml:{line.removeprefix('line ')}"
        if re.match(r"line \d", line)
        else f"config.yaml: {line}"
        for line in lines
    )


def write(name: str, content: bytes | str) -> Preparation:
    """Write a file, or replace one."""

    def prepare() -> None:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return prepare


def change(name: str, old: str, new: str) -> Preparation:
    """Change a text file."""

    def prepare() -> None:
        path = Path(name)
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    return prepare


def config(old: str, new: str) -> Preparation:
    """Change the config."""
    return change("config.yaml", old, new)


def remove(name: str) -> Preparation:
    """Remove a file."""
    return lambda: Path(name).unlink()


def remove_states(run: str) -> None:
    """Remove all checkpoints of a run except snapshots."""
    for name in ("best", "last", "previous"):
        Path(run, f"{name}.safetensors").unlink(missing_ok=True)


def own(*then: Preparation) -> Preparation:
    """Copy a run to `own` and change the copy."""

    def prepare() -> None:
        shutil.copytree("luong", "own")
        for each in then:
            each()

    return prepare


def cut(name: str, size: int) -> Preparation:
    """Truncate a file to its first bytes."""
    return lambda: Path(name).write_bytes(Path(name).read_bytes()[:size])


def without_limit() -> None:
    """Remove the length limit from the weights, as an earlier version might have written them."""
    path = Path("own/best.safetensors")
    header = {key: value for key, value in read_header(path)[0].items() if key != "limit"}
    save_tensors(path, read_tensors(path), header)


def rewritten(**header: object) -> None:
    """Change the weights to ones that another version wrote."""
    path = Path("own/best.safetensors")
    save_tensors(path, read_tensors(path), {**read_header(path)[0], **header})


def another_vocabulary() -> None:
    """Create `own`, a run whose vocabulary has an additional unknown, empty field."""
    model = Path("luong/vocabulary/joint.model").read_bytes() + b"\x7a\x00"
    vocabulary = Vocabulary(model)
    copy_with_vocabularies(Path("luong"), Path("own"), Vocabularies(vocabulary, vocabulary))


def own_data(**changes: object) -> Preparation:
    """Create `own`, a run whose config has other data."""

    def prepare() -> None:
        shutil.copytree("luong", "own")
        tree = yaml.safe_load(Path("own/config.yaml").read_text(encoding="utf-8"))
        tree["data"] |= changes
        Path("own/config.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")

    return prepare


the_other_direction = own_data(src_lang="yy", tgt_lang="xx")
T, M = "train config.yaml", "translate -m luong"
SWAPPED = (
    "valid.tgt and valid.src: source and target seem to be swapped relative to train.src and "
    "train.tgt: 92% of its source words occur on the target side there and 3% on the source side. "
    "Swap the sides of one of the two: the source language is xx."
)
NO_OTHER = "No other checkpoint here is intact: copy the run again, or train with --overwrite"
RESTORES = "copy it from the run again, or train again"
LINES = "line n of one must translate line n of the other"

CALLS = {
    "no help of that": Row(
        "help trian", "argument COMMAND: invalid choice: 'trian'; did you mean 'train'?"
    ),
    "no such command": Row(
        "transalte -m luong",
        "argument COMMAND: invalid choice: 'transalte'; did you mean 'translate'?",
    ),
    "a command of another kind": Row(
        "sing -m luong",
        "argument COMMAND: invalid choice: 'sing' (choose from ...); see seq2seq --help",
    ),
    "a metric misspelt": Row(
        f"{M} --mbr CHR", "argument --mbr: invalid choice: 'CHR'; did you mean 'chrf'?"
    ),
    "no config": Row(
        "train", "the following arguments are required: CONFIG; see seq2seq train --help"
    ),
    "no model": Row(
        "translate",
        "the following arguments are required: -m/--model; see seq2seq translate --help",
    ),
    "no alignment to evaluate": Row(
        "attention -m luong --gold test.tgt",
        "attention --gold: needs -o FILE.align, the alignments to evaluate",
    ),
    "no such option": Row(
        f"{M} --colour red", "unrecognized arguments: --colour; see seq2seq translate --help"
    ),
    "an override of translate": Row(
        f"{M} decoding.beam=1",
        "decoding.beam (override): unknown key; did you mean 'decoding.beam_size' (hypotheses "
        "kept; 1: greedy search)?",
    ),
    "an option without a value": Row(
        f"{M} -b", "argument -b/--beam: expected one argument; see seq2seq translate --help"
    ),
    **{
        f"{option} {value}": Row(
            f"{M} {option} {value}",
            f"argument {name}: must be an integer of at least 1, not '{value}'; "
            "see seq2seq translate --help",
        )
        for option, name, value in (
            ("-b", "-b/--beam", "0"),
            ("-b", "-b/--beam", "1.5"),
            ("--n-best", "--n-best", "two"),
            ("--n-best", "--n-best", "0"),
            ("--batch-size", "--batch-size", "0"),
        )
    },
    "no run to begin with": Row(
        f"{T} --init-from nowhere",
        "--init-from nowhere: no such run folder; `seq2seq train CONFIG` creates one",
    ),
    "both ways to begin": Row(
        f"{T} --resume --overwrite",
        "argument --overwrite: not allowed with argument --resume; see seq2seq train --help",
    ),
    "n-best beyond the beam of the config": Row(
        f"{M} --n-best 4", "--n-best 4: larger than the beam (3); increase -b"
    ),
    "n-best beyond the beam": Row(
        f"{M} -b 2 --n-best 3", "--n-best 3: larger than the beam (2); increase -b"
    ),
    "no such kind of device": Row(
        f"{M} --device tpu", "--device tpu: must be auto, cpu, cuda, cuda:N or mps"
    ),
    "no such device": Row(
        f"{M} --device cuda:99", "--device cuda:99: this machine has ...; use cpu or auto"
    ),
    "training on no such device": Row(
        f"{T} --device gpu", "--device gpu: must be auto, cpu, cuda, cuda:N or mps"
    ),
}

CONFIGS = {
    "no such config": Row(
        "train confg.yaml", "confg.yaml: no such file; did you mean 'config.yaml'?"
    ),
    "no config yet": Row(
        "train mine.yml", "mine.yml: no such file; seq2seq init writes a config that suits your..."
    ),
    "a folder as config": Row("train folder", "folder: is a folder, not a config file"),
    "a run as config": Row(
        "train luong", "luong: is a folder, not a config file; did you mean 'luong/config.yaml'?"
    ),
    "data as config": Row(
        "train train.src",
        "train.src: the top level is not a mapping; write lines such as `name: my-run`",
    ),
    "an empty config": Row(T, "config.yaml: the file is empty...", write("config.yaml", "")),
    "no YAML": Row(
        T, config_errors("line 11: column 6: invalid YAML: ..."), config("size: 340}", "size: 340")
    ),
    "a tab": Row(
        T,
        config_errors("line 4: begins with a tab; indent with spaces"),
        config("  src_", "\tsrc_"),
    ),
    "another encoding": Row(
        T,
        "config.yaml:1: byte 0xe9 is not UTF-8; save the file as UTF-8",
        write("config.yaml", b"name: caf\xe9\n"),
    ),
    "an unknown section": Row(
        T,
        config_errors("line 11: modle: unknown key; did you mean 'model'?"),
        config("model:", "modle:"),
    ),
    "an unknown key": Row(
        T,
        config_errors("line 11: model.hiden_size: unknown key; did you mean 'hidden_size'?"),
        config("hidden_size", "hiden_size"),
    ),
    "a key of another section": Row(
        T,
        config_errors("line 11: model.beam_size: unknown key; did you mean 'decoding.beam_size'?"),
        config("hidden_size", "beam_size"),
    ),
    "a key like no other": Row(
        T, config_errors("line 11: model.xyz: unknown key"), config("hidden_size", "xyz")
    ),
    "a missing key": Row(
        T, config_errors("data.src_lang: required key is missing"), config("  src_lang: xx\n", "")
    ),
    "a missing section": Row(
        T,
        config_errors("training: set at least one of max_epochs, max_steps and max_minutes"),
        config("training: {max_steps: 1, log_every: 40}\n", ""),
    ),
    "a key twice": Row(
        T,
        config_errors("line 13: name: set twice, first on line 1; remove one of the two"),
        config("log_every: 40}\n", "log_every: 40}\nname: again\n"),
    ),
    "a section of one value": Row(
        T,
        config_errors("line 10: vocabulary: must be a section with keys; got 340"),
        config("{size: 340}", "340"),
    ),
    "a list": Row(
        T,
        config_errors("line 10: vocabulary.size: must be an integer; got a list"),
        config("340", "[340]"),
    ),
    "an empty text": Row(
        T, config_errors("line 1: name: must not be empty"), config("small", "''")
    ),
    "a name of no file": Row(
        T,
        config_errors("line 2: run_dir: must not contain a NUL character; got 'a\\x00b'"),
        config("run_dir: run", 'run_dir: "a\\0b"'),
    ),
    "one side only": Row(
        T,
        config_errors(
            "line 7: data.valid: set either src and tgt, or file alone (null unsets a key)"
        ),
        config(", tgt: valid.tgt", ""),
    ),
    "both forms": Row(
        T,
        config_errors(
            "line 7: data.valid.file: set either src and tgt, or file alone (null unsets a key); "
            "got a.tsv"
        ),
        config("tgt: valid.tgt", "tgt: valid.tgt, file: a.tsv"),
    ),
    "the same file on both sides": Row(
        T,
        config_errors(
            "line 6: data.train: src and tgt are the same file; set tgt to the translation"
        ),
        config("train.tgt", "train.src"),
    ),
    "a tag": Row(
        T,
        config_errors("line 1: name: the tag !!int is not supported; write the value itself"),
        config("name: small", "name: !!int 3"),
    ),
    "four mistakes": Row(
        f"{T} decoding.beam_size=0",
        config_errors(
            "line 10: vocabulary.size: must be an integer; got many",
            "line 11: model.hiden_size: unknown key; did you mean 'hidden_size'?",
            "line 12: training.log_evry: unknown key; did you mean 'log_every'?",
            "decoding.beam_size (override): must be at least 1; got 0",
        ),
        lambda: [
            config("340", "many")(),
            config("hidden_size", "hiden_size")(),
            config("log_every", "log_evry")(),
        ],
    ),
}

OVERRIDES = {
    "seed=x": "must be an integer; got x",
    "seed=-1": "must be at least 0; got -1",
    "seed=1e30": "must be less than 9223372036854775808; got 1e30",
    "name=": "must be a string; got null",
    "vocabulary.type=sentencepiece": (
        "must be 'unigram', 'bpe', 'word' or 'char'; got sentencepiece"
    ),
    "vocabulary.size=15": "must be at least 16; got 15",
    "vocabulary.size=3e9": "must be at most 1000000; got 3e9",
    "vocabulary.joint=2": "must be true or false; got 2",
    "vocabulary.sampling=1.5": "must be at most 1; got 1.5",
    "model.decoder=bahdnau": (
        "must be 'bahdanau', 'luong', 'gnmt' or 'none'; got bahdnau; did you mean 'bahdanau'?"
    ),
    "model.score=dot": "decoder bahdanau takes additive, normed_additive, coverage; got dot",
    "model.input_feeding=true": "input feeding belongs to decoder luong; got true",
    "model.window=local": "must be 'local_m' or 'local_p'; got local; did you mean 'local_p'?",
    "model.encoder=both": ("must be 'bidirectional', 'forward' or 'reversed'; got both"),
    "model.hidden_size=21": "must be even with a bidirectional encoder; got 21",
    "model.hidden_size=2.5": "must be an integer; got 2.5",
    "model.embedding_size=0": "must be at least 1; got 0",
    "model.embedding_size=1e9": "must be at most 65536; got 1e9",
    "model.layers=100": "must be at most 64; got 100",
    "model.dropout=1": "must be less than 1; got 1",
    "model.dropout=-0.1": "must be at least 0; got -0.1",
    "model.hiden=3": "unknown key; did you mean 'hidden_size'?",
    "model.dropot=0.1": "unknown key; did you mean 'dropout'?",
    "training.optimizer=adm": ("must be 'adam', 'adamw' or 'sgd'; got adm; did you mean 'adam'?"),
    "training.learning_rate=0": "must be greater than 0; got 0",
    "training.learning_rate=nan": "must be a finite number; got nan",
    "training.learning_rate=fast": "must be a number; got fast",
    "training.max_minutes=-1": "must be greater than 0; got -1",
    "training.precision=fp61": (
        "must be 'float32', 'bf16', 'fp16' or 'auto'; got fp61; did you mean 'fp16'?"
    ),
    "training.average=1": "must be less than 1; got 1",
    "training.batch_tokens=0": "must be at least 1; got 0",
    "training.keep=-1": "must be at least 0; got -1",
    "training.warmup_steps=-1": "must be at least 0; got -1",
    "training.decay=invers_sqrt": (
        "must be 'constant', 'inverse_sqrt', 'linear', 'cosine' or 'plateau'; got invers_sqrt; "
        "did you mean 'inverse_sqrt'?"
    ),
    "decoding.coverage_penalty=-1": "must be at least 0; got -1",
    "decoding.no_repeat_ngram=-1": "must be at least 0; got -1",
    "decoding.no_repeat_ngram=1.5": "must be an integer; got 1.5",
    "decoding.replace_unknown=maybe": "must be true or false; got maybe",
    "decoding.beam_size=1e20": "must be at most 1000000; got 1e20",
    "decoding.min_length=1e30": "must be at most 10000; got 1e30",
    "decoding.length_penalty=1e5": "must be at most 10; got 1e5",
    "training.log_every=1e13": "must be at most 10000; got 1e13",
    "decoding.beam_size=0": "must be at least 1; got 0",
    "decoding.length_penalty=inf": "must be a finite number; got inf",
    "decoding=5": ("must be a section with keys; got 5; set them one by one: decoding.KEY=VALUE"),
}
CONFIGS |= {
    override: Row(
        f"{T} {override}", config_errors(f"{override.partition('=')[0]} (override): {reason}")
    )
    for override, reason in OVERRIDES.items()
}
CONFIGS |= {
    **{
        f"an override of no value: {call}": Row(
            f"{T} {call}",
            config_errors("seed (override): expected section.key=value, such as model.dropout=0.2"),
        )
        for call in ("seed", "--resume seed")
    },
    "an override below a value": Row(
        f"{T} model.decoder.x=1",
        config_errors(
            "model.decoder.x=1 (override): model.decoder has a single value; give it a new one"
        ),
    ),
    "words do not sample": Row(
        f"{T} vocabulary.type=word vocabulary.sampling=0.1",
        config_errors(
            "vocabulary.sampling (override): must be 0 with type word, "
            "which has a single segmentation; got 0.1"
        ),
    ),
    "a plateau of no length": Row(
        f"{T} training.decay=plateau",
        config_errors(
            "line 12: training: decay plateau needs patience, the validations without improvement"
        ),
    ),
    "two passes that are the same": Row(
        f"{T} model.dropout=0 training.losses.consistency=1",
        config_errors(
            "training (override): losses: consistency needs model.dropout above 0; "
            "both passes are equal"
        ),
    ),
    "scheduled sampling of no length": Row(
        f"{T} training.scheduled_sampling=linear",
        config_errors("training.scheduled_sampling.steps: required key is missing"),
    ),
    "heads that do not share alike": Row(
        f"{T} model.decoder=luong model.score.scaled_dot=3 model.attention_size=10",
        config_errors(
            "model.attention_size (override): must be a multiple of the 3 heads of "
            "{scaled_dot: 3}; got 10"
        ),
    ),
    "attention without a decoder for it": Row(
        f"{T} model.decoder=none model.score=dot",
        config_errors("model.score (override): decoder none has no attention; got dot"),
    ),
    "a size for a score without one": Row(
        f"{T} model.decoder=luong model.score=dot model.attention_size=4",
        config_errors("model.attention_size (override): score dot has no attention size; got 4"),
    ),
}

DATA = {
    "no such data": Row(
        f"{T} data.train.src=trian.src", "trian.src: no such file; did you mean 'train.src'?"
    ),
    "no such folder": Row(
        f"{T} data.train.src=nowhere/a",
        "nowhere/a: no such file; the folder nowhere does not exist",
    ),
    "no such test data": Row(
        T, "test.tgt: no such file; did you mean 'test.src'?", remove("test.tgt")
    ),
    "a folder as data": Row(f"{T} data.train.src=folder", "folder: is a folder. Give a text file."),
    "empty data": Row(
        T, "valid.src: the file is empty. It needs one sentence per line.", write("valid.src", "")
    ),
    "blank data": Row(
        T,
        "valid.src and valid.tgt: none of the 15 pairs has text on both sides. "
        "Check that these are the right files.",
        write("valid.src", "\n" * 15),
    ),
    "Latin-1": Row(
        T,
        "train.src:2: byte 0xe9 at column 4 is not UTF-8. "
        "Convert the file: iconv -f ENCODING -t UTF-8.",
        write("train.src", b"a\ncaf\xe9\n"),
    ),
    "UTF-16": Row(
        T,
        "train.src:1: contains a NUL character; no text does. If this is text in UTF-16, convert "
        "it: iconv -f UTF-16 -t UTF-8 train.src > NEW_FILE",
        write("train.src", "a\nb\n".encode("utf-16-le")),
    ),
    "no gzip": Row(
        f"{T} data.train.src=a.gz",
        "a.gz: the gzip file is damaged or incomplete (Not a gzipped file (b'te')). Copy or "
        "download it again",
        write("a.gz", "text\n"),
    ),
    "gzip cut off": Row(
        f"{T} data.train.src=a.gz",
        "a.gz: the gzip file is damaged or incomplete (...). Copy or download it again",
        write("a.gz", gzip.compress(b"text\n" * 99)[:-9]),
    ),
    "a line too many": Row(
        T,
        f"train.src has 121 lines but train.tgt has 120: {LINES}",
        lambda: Path("train.src").write_text(
            "\n".join([*(lines := Path("train.src").read_text().split("\n"))[:40], "", *lines[40:]])
        ),
    ),
    "a side cut off": Row(
        T,
        f"train.src has 120 lines but train.tgt has 70: {LINES}",
        lambda: Path("train.tgt").write_text(
            "".join(line + "\n" for line in Path("train.tgt").read_text().split("\n")[:70])
        ),
    ),
    "no columns": Row(
        f"{T} data.train.src=null data.train.tgt=null data.train.file=train.src",
        "train.src:1: the line has 1 column, which tabs separate; column 2 is to be read "
        "(of a text in two files, name both)",
    ),
    "a line of one column": Row(
        f"{T} data.train.src=null data.train.tgt=null data.train.file=a.tsv",
        "a.tsv:2: the line has 1 column, which tabs separate; column 2 is to be read",
        write("a.tsv", "a\tb\nc d\n"),
    ),
    "swapped languages": Row(f"{T} data.valid.src=valid.tgt data.valid.tgt=valid.src", SWAPPED),
    "swapped languages of the test set": Row(
        f"{T} data.test.src=test.tgt data.test.tgt=test.src",
        SWAPPED.replace("valid", "test").replace("92%", "...%").replace(" 3%", " ...%"),
    ),
    "a swapped training text": Row(
        f"{T} data.train.src=train.tgt data.train.tgt=train.src",
        "valid.src and valid.tgt: source and target seem to be swapped relative to train.tgt and "
        "train.src: ... Swap the sides of one of the two: the source language is xx.",
    ),
    "a swapped training text in init": Row(
        "init my.yaml --src-lang xx --tgt-lang yy --train train.tgt train.src "
        "--valid valid.src valid.tgt",
        "valid.src and valid.tgt: source and target seem to be swapped relative to train.tgt and "
        "train.src: ... Swap the sides of one of the two: the source language is xx.",
    ),
    "a swapped test text in init, which then holds nothing out": Row(
        "init my.yaml --src-lang xx --tgt-lang yy --train train.src train.tgt "
        "--test test.tgt test.src",
        "test.tgt and test.src: source and target seem to be swapped relative to train.src and "
        "train.tgt: ... Swap the sides of one of the two: the source language is xx.",
    ),
    "too many tokens": Row(
        f"{T} vocabulary.size=9000",
        "vocabulary.size: 9000 is more than this text allows; set at most ...",
    ),
    "too few tokens": Row(
        f"{T} vocabulary.size=20",
        "vocabulary.size: 20 is too small for the characters of this text; set at least ...",
    ),
    "too few tokens for bytes": Row(
        f"{T} vocabulary.size=20 vocabulary.type=char",
        "vocabulary.size: 20 is too small for bytes and special tokens; set at least 260",
    ),
    "every pair too long": Row(
        f"{T} data.max_length=1",
        "data.max_length: every training pair is longer than 1 tokens. Increase it",
    ),
    "a run folder that is a file": Row(
        f"{T} run_dir=train.src", "run_dir: train.src is a file; choose another name"
    ),
    "a run folder below a file": Row(
        f"{T} run_dir=train.src/run",
        "run_dir: train.src/run cannot be created in .../train.src; choose another place",
    ),
    "a run lives here": Row(
        f"{T} run_dir=luong",
        "luong: already holds a run. Resume it with --resume, "
        "replace it with --overwrite, or set another run_dir",
    ),
    "a config that no run wrote": Row(
        f"{T} run_dir=mine",
        "run_dir: mine holds config.yaml, which no run wrote. Move it away, or set another run_dir",
        write("mine/config.yaml", "# precious\nname: mine\n"),
    ),
    "a config that no run wrote, to resume": Row(
        f"{T} run_dir=mine --resume",
        "mine: not a run folder, it has no config.yaml of a run, and it is not empty either; "
        "train without --resume, or set another run_dir",
        write("mine/config.yaml", "# precious\nname: mine\n"),
    ),
    "snapshots that no run wrote": Row(
        f"{T} run_dir=mine",
        "run_dir: mine holds step-7.safetensors, which no run wrote. "
        "Move it away, or set another run_dir",
        write("mine/step-7.safetensors", "precious"),
    ),
    "nothing left to resume but snapshots": Row(
        f"{T} --resume",
        "run: nothing to resume: it has metrics.jsonl, but no last.safetensors. "
        "Train again with --overwrite, which replaces the run",
        lambda: (main(["train", "config.yaml"]), remove_states("run")),
    ),
    "resuming another config": Row(
        f"{T} --resume seed=2",
        "run: --resume needs the config that the run started with. "
        "These keys differ:\n  seed: 1 -> 2\nRestore them, or train again (--overwrite, or "
        "another run_dir), or start another run (another run_dir) from its best weights: "
        "--init-from run",
        lambda: main(["train", "config.yaml"]),
    ),
}

MODELS = {
    "no such run": Row(
        "translate -m nowhere", "nowhere: no such run folder; `seq2seq train CONFIG` creates one"
    ),
    "a misspelt run": Row("translate -m loung", "loung: no such run folder; did you mean 'luong'?"),
    "no run folder": Row("translate -m folder", "folder: not a run folder, it has no config.yaml"),
    "a file as run folder": Row(
        "translate -m luong/best.safetensors",
        "luong/best.safetensors: is a file, not a run folder; give its run_dir",
    ),
    "the config of a run as run folder": Row(
        "translate -m luong/config.yaml",
        "luong/config.yaml: is a file, not a run folder; give its run_dir",
    ),
    "a config as run folder": Row(
        "translate -m config.yaml",
        "config.yaml: is a file, not a run folder; give its run_dir",
        lambda: Path("run").mkdir(),
    ),
    "a config of no run yet as run folder": Row(
        "translate -m config.yaml", "config.yaml: is a file, not a run folder; give its run_dir"
    ),
    "a file beside a config as run folder": Row(
        "translate -m train.src", "train.src: is a file, not a run folder; give its run_dir"
    ),
    "a faulty config as run folder": Row(
        "translate -m config.yaml",
        "config.yaml: is a file, not a run folder; give its run_dir",
        config("data:", "date:"),
    ),
    "no weights yet": Row(
        "translate -m own",
        f"own: has no best.safetensors, which the first validation writes. {NO_OTHER}",
        own(remove("own/best.safetensors")),
    ),
    "weights lost": Row(
        "translate -m own",
        f"own: has no best.safetensors, which the first validation writes. {NO_OTHER}",
        own(
            remove("own/best.safetensors"),
            write("own/metrics.jsonl", '{"step": 7, "valid_loss": 2.5}\n'),
        ),
    ),
    "a training that was not validated yet": Row(
        "translate -m own",
        f"own: has no best.safetensors, which the first validation writes. {NO_OTHER}",
        own(
            remove("own/best.safetensors"),
            write("own/metrics.jsonl", '{"step": 7, "train_loss": 2.5}\n'),
        ),
    ),
    "weights cut off": Row(
        "translate -m own", "own/best.safetensors: ...", own(cut("own/best.safetensors", 5000))
    ),
    "weights of another program": Row(
        "translate -m own",
        f"own/best.safetensors: not a seq2seq checkpoint. {NO_OTHER}",
        own(lambda: save_file({"w": torch.ones(2)}, "own/best.safetensors")),
    ),
    "weights of another version": Row(
        "translate -m own",
        "own/best.safetensors: the header is damaged or from another version of seq2seq "
        f"(KeyError('limit')). {NO_OTHER}",
        own(without_limit),
    ),
    "a config of another version": Row(
        "translate -m own",
        "own/config.yaml:1: title: unknown key; own/config.yaml: name: required key is missing "
        "(`seq2seq train CONFIG --resume` writes it again)",
        own(change("own/config.yaml", "name: tiny", "title: tiny")),
    ),
    "weights of an incompatible version": Row(
        "translate -m own",
        "own/best.safetensors: written by seq2seq 0.1.9, which has another format; use that "
        "version, or train again",
        own(lambda: rewritten(format=1, version="0.1.9")),
    ),
    "weights of another config": Row(
        "translate -m own",
        "own/config.yaml: does not fit own/best.safetensors, trained with other values: "
        "model.hidden_size: 20 -> 22; restore them, or take both files from the same run",
        own(change("own/config.yaml", "hidden_size: 20", "hidden_size: 22")),
    ),
    "no vocabulary": Row(
        "translate -m own",
        "own/vocabulary/joint.model: no such file; a run folder has its vocabulary there; "
        f"{RESTORES}",
        own(remove("own/vocabulary/joint.model")),
    ),
    "a vocabulary cut off": Row(
        "translate -m own",
        "own/vocabulary/joint.model: its checksum differs from the one recorded with the weights; "
        f"it is damaged, or one of them is from another run; {RESTORES}",
        own(cut("own/vocabulary/joint.model", 999)),
    ),
    "an ensemble of two vocabularies": Row(
        "translate -m luong -m own",
        "own: has another vocabulary than luong; combine runs that share one",
        another_vocabulary,
    ),
    "an ensemble of two directions": Row(
        "translate -m luong -m own",
        "own: translates yy to xx but luong xx to yy; combine runs of one direction",
        the_other_direction,
    ),
}

FILES = {
    "no such input": Row(f"{M} -i nowhere", "nowhere: no such file"),
    "a folder as input": Row(f"{M} -i folder", "folder: is a folder. Give a text file."),
    "an input that leads nowhere": Row(
        f"{M} -i loop", "loop: cannot be read (...)", lambda: Path("loop").symlink_to("loop")
    ),
    "an input that is no gzip": Row(
        f"{M} -i a.gz",
        "a.gz: the gzip file is damaged or incomplete (Not a gzipped file (b'te')). Copy or "
        "download it again",
        write("a.gz", "text\n"),
    ),
    "an output that would be packed": Row(
        f"{M} -o out.gz", "out.gz: output is not compressed; omit .gz"
    ),
    "a folder as output": Row(f"{M} -o folder", "folder: is a folder; give a file name"),
    "an output in no folder": Row(
        f"{M} -o nowhere/out", "nowhere/out: there is no folder nowhere; create it first"
    ),
    "an output below a file": Row(
        f"{M} -o test.src/out", "test.src/out: there is no folder test.src; create it first"
    ),
    "the input as output": Row(
        f"{M} -i test.src -o ./test.src",
        "test.src: is already read or written by this command; choose another name",
    ),
    "the input by another name as output": Row(
        f"{M} -i test.src -o other",
        "other: is already read or written by this command; choose another name",
        lambda: Path("other").symlink_to("test.src"),
    ),
    "a stream to a file": Row(
        f"{M} --stream -o out", "out: -o creates the file only at the end; with --stream, use > out"
    ),
    "neither run nor text to score": Row("evaluate", "evaluate: give either -m RUN or --hyp FILE"),
    "both to score": Row(
        "evaluate -m luong --hyp test.src -r test.tgt", "evaluate: give either -m RUN or --hyp FILE"
    ),
    "text to score without a reference": Row(
        "evaluate --hyp test.src", "evaluate: give a reference, -r FILE"
    ),
    "a run to score without a reference": Row(
        "evaluate -m luong -i test.src", "evaluate: give a reference, -r FILE"
    ),
    "a reference without its source": Row(
        "evaluate -m luong -r test.tgt",
        "evaluate -m: -r needs -i FILE, the source text it translates",
    ),
    "a run without test data": Row(
        "evaluate -m luong", "luong: its config has no data.test; give -i FILE and -r FILE"
    ),
    "a run whose text is gone": Row(
        "evaluate -m own",
        "gone.src: no such file; the run own records it as its test text; restore it, or give -i "
        "FILE and -r FILE",
        own_data(test={"src": "gone.src", "tgt": "test.tgt"}),
    ),
    "text to score and to keep": Row(
        "evaluate --hyp test.src -r test.tgt -o out",
        "evaluate --hyp: -i and -o need -m RUN, which translates first",
    ),
    "text to score on a device": Row(
        "evaluate --hyp test.src -r test.tgt -b 3",
        "evaluate --hyp: -b, --int8, --float16, --device and decoding.KEY need -m RUN, which "
        "translates",
    ),
    "translations among the scores": Row(
        "evaluate -m luong -i test.src -r test.tgt -o -",
        "evaluate -o -: standard output receives the scores; give a file",
    ),
    "sentences of three texts": Row(
        "evaluate --hyp test.src --hyp test.src --hyp test.src -r test.tgt --sentences worst.tsv",
        "evaluate --sentences: give one --hyp file",
    ),
    "no such reference": Row(
        "evaluate --hyp test.src -r test.tg", "test.tg: no such file; did you mean 'test.tgt'?"
    ),
    "a reference of other length": Row(
        "evaluate --hyp test.src -r valid.tgt",
        "test.src has 11 lines but valid.tgt has 15: "
        "line n of one must belong to line n of the other",
    ),
    "a second reference of other length": Row(
        "evaluate -m luong -i test.src -r test.tgt -r valid.tgt",
        "test.src has 11 lines but valid.tgt has 15: "
        "line n of one must belong to line n of the other",
    ),
    "nothing to score": Row(
        "evaluate --hyp empty -r test.tgt",
        "empty: the file is empty. It needs one sentence per line.",
        write("empty", ""),
    ),
    "no such tokenizer": Row(
        "evaluate --hyp test.src -r test.tgt --tokenize 13b",
        "unknown BLEU tokenizer '13b': choose one of ...",
    ),
    "scores in no folder": Row(
        "evaluate --hyp test.src -r test.tgt --json nowhere/scores",
        "nowhere/scores: there is no folder nowhere; create it first",
    ),
    "the reference as output": Row(
        "evaluate -m luong -i test.src -r test.tgt -o test.tgt",
        "test.tgt: is already read or written by this command; choose another name",
    ),
    "the test set of a run as output": Row(
        "evaluate -m own -o test.tgt",
        "test.tgt: is already read or written by this command; choose another name",
        own_data(test={"src": "test.src", "tgt": "test.tgt"}),
    ),
    "the config as what check writes": Row(
        "check config.yaml --json config.yaml",
        "config.yaml: is already read or written by this command; choose another name",
    ),
    "the data as what check writes": Row(
        "check config.yaml --json train.src",
        "train.src: is already read or written by this command; choose another name",
    ),
    "one output twice": Row(
        "evaluate -m luong -i test.src -r test.tgt -o out --json out",
        "out: is already read or written by this command; choose another name",
    ),
    "a picture of another kind": Row(
        "attention -m luong -o plot.bmp",
        "plot.bmp: unknown suffix '.bmp'. Use .html, .png, .svg, .pdf, .json or .align.",
    ),
    "a picture in no folder": Row(
        "attention -m luong -o nowhere/plot.html",
        "nowhere/plot.html: there is no folder nowhere; create it first",
    ),
    "no attention": Row(
        "attention -m none -o plot.html",
        "none: the model has no attention to plot (model.decoder: none); "
        "use a run with another decoder",
    ),
    "nothing to plot": Row(
        "attention -m luong -i blank -o plot.html",
        "plot.html: no attention to plot: every sentence is blank or too long",
        write("blank", "\n \n"),
    ),
}
if Path("/dev/full").exists():  # exists on Linux
    FILES["a full disk"] = Row(
        f"{M} -o /dev/full", "/dev/full: cannot be written (No space left on device)", code=1
    )

SCORES = {
    "nothing to be scored": Row(
        "score -m luong -i test.src",
        "the following arguments are required: -r/--ref; see seq2seq score --help",
    ),
    "pairs of other length": Row(
        "score -m luong -i test.src -r valid.tgt",
        "test.src has 11 lines but valid.tgt has 15: "
        "line n of one must belong to line n of the other",
    ),
    "pairs of other length, read from stdin": Row(
        "score -m luong -r test.tgt",
        "standard input has 1 line but test.tgt has 11: "
        "line n of one must belong to line n of the other",
    ),
    "no such translations": Row("score -m luong -i test.src -r nowhere", "nowhere: no such file"),
    "the translations as output": Row(
        "score -m luong -i test.src -r test.tgt -o test.tgt",
        "test.tgt: is already read or written by this command; choose another name",
    ),
    "scores of two vocabularies": Row(
        "score -m luong -m own -i test.src -r test.tgt",
        "own: has another vocabulary than luong; combine runs that share one",
        another_vocabulary,
    ),
}

AVERAGES = {
    "an average to nowhere": Row(
        "average luong",
        "the following arguments are required: -o/--output; see seq2seq average --help",
    ),
    "an average of nothing": Row(
        "average luong -o new",
        "luong: too few snapshots (step-N.safetensors): 0 of 2; "
        "train with training.keep, or name several runs",
    ),
    "an average of no run": Row(
        "average nowhere -o new", "nowhere: no such run folder; `seq2seq train CONFIG` creates one"
    ),
    "an average of one twice": Row(
        "average luong luong/best.safetensors -o new",
        "luong/best.safetensors: has the same weights as luong/best.safetensors; name each "
        "checkpoint only once",
    ),
    "an average of text": Row(
        "average luong test.src -o new",
        "test.src: not a checkpoint; give a run folder, its best.safetensors or a "
        "step-N.safetensors",
    ),
    "the newest of several": Row(
        "average luong none --last 3 -o new",
        "--last 3: selects snapshots of a single run folder; name only one",
    ),
    "an average of two models": Row(
        "average luong own -o new",
        "own/best.safetensors: has another model than luong/best.safetensors: "
        "model.decoder: luong -> bahdanau...",
        lambda: shutil.copytree("bahdanau", "own"),
    ),
    "an average of two vocabularies": Row(
        "average luong own -o new",
        "own/best.safetensors: has another vocabulary than luong/best.safetensors; "
        "combine runs that share one",
        another_vocabulary,
    ),
    "an average of one": Row(
        "average luong --last 1 -o new", "--last 1: an average needs at least 2 checkpoints"
    ),
    "an average of two directions": Row(
        "average luong own -o new",
        "own/best.safetensors: translates yy to xx but luong/best.safetensors xx to yy; combine "
        "runs of one direction",
        the_other_direction,
    ),
    "an average over its input": Row(
        "average luong/best.safetensors -o luong --overwrite",
        "luong: is one of the runs to average; choose a new folder",
    ),
    "an average over a run": Row(
        "average luong/best.safetensors -o none",
        "none: already contains a run; replace it with --overwrite",
    ),
    "an average over other things": Row(
        "average luong/best.safetensors -o luong/vocabulary --overwrite",
        "luong/vocabulary: contains files other than a run's; choose a new folder",
    ),
    "an average over a file": Row(
        "average luong/best.safetensors -o test.src",
        "run_dir: test.src is a file; choose another name",
    ),
}

TABLE = {**CALLS, **CONFIGS, **DATA, **MODELS, **FILES, **SCORES, **AVERAGES}


@pytest.fixture
def folder(tmp_path: Path, tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the working directory of a call: config, data, tiny runs and an empty folder."""
    monkeypatch.chdir(tmp_path)
    for split, count, seed in (("train", 120, 1), ("valid", 15, 2), ("test", 11, 3)):
        for side, lines in zip(("src", "tgt"), toy_pairs(count, seed), strict=True):
            write(f"{split}.{side}", "".join(f"{line}\n" for line in lines))()
    write("config.yaml", CONFIG)()
    for name, run in tiny_runs.items():
        Path(name).symlink_to(run)
    Path("folder").mkdir()
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes]:
    """Return every file and folder with its content."""
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("row", TABLE.values(), ids=list(TABLE))
def test_an_error_is_reported_and_changes_no_files(
    row: Row, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    row.before()
    before = contents(folder)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"zu\n")))
    capfd.readouterr()
    code = main(row.call.split())
    out, err = capfd.readouterr()
    wanted = re.escape(f"seq2seq: error: {row.message}\n").replace(re.escape("..."), "[^\n]*")
    assert re.fullmatch(wanted, err), err
    assert (code, out) == (row.code, "")
    assert contents(folder) == before


def test_the_table_has_many_distinct_errors() -> None:
    assert len(TABLE) >= 60
    assert len({(row.call, row.before) for row in TABLE.values()}) == len(TABLE)

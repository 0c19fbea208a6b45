"""User errors in one table: the situation, the message and the exit code."""

import gzip
import io
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from cases.config_mistakes import CONFIGS, TRAIN
from cases.mistakes import (
    CONFIG,
    Row,
    change,
    change_config,
    copied_run,
    copied_run_with_data,
    copy_with_longer_vocabulary,
    remove,
    remove_limit,
    remove_states,
    rewrite_header,
    truncate,
    write,
)
from cases.toy_text import toy_pairs
from safetensors.torch import save_file

from seq2seq.__main__ import main

TRANSLATE = "translate -m luong"
OTHER_DIRECTION = copied_run_with_data(src_lang="yy", tgt_lang="xx")
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
        f"{TRANSLATE} --mbr CHR", "argument --mbr: invalid choice: 'CHR'; did you mean 'chrf'?"
    ),
    "no config": Row(
        "train", "the following arguments are required: CONFIG; see seq2seq train --help"
    ),
    "no model": Row(
        "translate",
        "the following arguments are required: -m/--model; the package comes with -m en-fr; "
        "see seq2seq translate --help",
    ),
    "no alignment to evaluate": Row(
        "attention -m luong --gold test.tgt",
        "attention --gold: needs -o FILE.align, the alignments to evaluate",
    ),
    "no such option": Row(
        f"{TRANSLATE} --colour red",
        "unrecognized arguments: --colour; see seq2seq translate --help",
    ),
    "an override of translate": Row(
        f"{TRANSLATE} decoding.beam=1",
        "decoding.beam (override): unknown key; did you mean 'decoding.beam_size' (hypotheses "
        "kept; 1: greedy search)?",
    ),
    "an option without a value": Row(
        f"{TRANSLATE} -b", "argument -b/--beam: expected one argument; see seq2seq translate --help"
    ),
    **{
        f"{option} {value}": Row(
            f"{TRANSLATE} {option} {value}",
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
        f"{TRAIN} --init-from nowhere",
        "--init-from nowhere: no such run folder; `seq2seq train CONFIG` creates one",
    ),
    "both ways to begin": Row(
        f"{TRAIN} --resume --overwrite",
        "argument --overwrite: not allowed with argument --resume; see seq2seq train --help",
    ),
    "n-best beyond the beam of the config": Row(
        f"{TRANSLATE} --n-best 4", "--n-best 4: larger than the beam (3); increase -b"
    ),
    "n-best beyond the beam": Row(
        f"{TRANSLATE} -b 2 --n-best 3", "--n-best 3: larger than the beam (2); increase -b"
    ),
    "no such kind of device": Row(
        f"{TRANSLATE} --device tpu", "--device tpu: must be auto, cpu, cuda, cuda:N or mps"
    ),
    "no such device": Row(
        f"{TRANSLATE} --device cuda:99", "--device cuda:99: this machine has ...; use cpu or auto"
    ),
    "training on no such device": Row(
        f"{TRAIN} --device gpu", "--device gpu: must be auto, cpu, cuda, cuda:N or mps"
    ),
}

DATA = {
    "no such data": Row(
        f"{TRAIN} data.train.src=trian.src", "trian.src: no such file; did you mean 'train.src'?"
    ),
    "no such folder": Row(
        f"{TRAIN} data.train.src=nowhere/a",
        "nowhere/a: no such file; the folder nowhere does not exist",
    ),
    "no such test data": Row(
        TRAIN, "test.tgt: no such file; did you mean 'test.src'?", remove("test.tgt")
    ),
    "a folder as data": Row(
        f"{TRAIN} data.train.src=folder", "folder: is a folder. Give a text file."
    ),
    "empty data": Row(
        TRAIN,
        "valid.src: the file is empty. It needs one sentence per line.",
        write("valid.src", ""),
    ),
    "blank data": Row(
        TRAIN,
        "valid.src and valid.tgt: none of the 15 pairs has text on both sides. "
        "Check that these are the right files.",
        write("valid.src", "\n" * 15),
    ),
    "Latin-1": Row(
        TRAIN,
        "train.src:2: byte 0xe9 at column 4 is not UTF-8. "
        "Convert the file: iconv -f ENCODING -t UTF-8.",
        write("train.src", b"a\ncaf\xe9\n"),
    ),
    "UTF-16": Row(
        TRAIN,
        "train.src:1: contains a NUL character; no text does. If this is text in UTF-16, convert "
        "it: iconv -f UTF-16 -t UTF-8 train.src > NEW_FILE",
        write("train.src", "a\nb\n".encode("utf-16-le")),
    ),
    "no gzip": Row(
        f"{TRAIN} data.train.src=a.gz",
        "a.gz: the gzip file is damaged or incomplete (Not a gzipped file (b'te')). Copy or "
        "download it again",
        write("a.gz", "text\n"),
    ),
    "gzip cut off": Row(
        f"{TRAIN} data.train.src=a.gz",
        "a.gz: the gzip file is damaged or incomplete (...). Copy or download it again",
        write("a.gz", gzip.compress(b"text\n" * 99)[:-9]),
    ),
    "a line too many": Row(
        TRAIN,
        f"train.src has 121 lines but train.tgt has 120: {LINES}",
        lambda: Path("train.src").write_text(
            "\n".join([*(lines := Path("train.src").read_text().split("\n"))[:40], "", *lines[40:]])
        ),
    ),
    "a side cut off": Row(
        TRAIN,
        f"train.src has 120 lines but train.tgt has 70: {LINES}",
        lambda: Path("train.tgt").write_text(
            "".join(line + "\n" for line in Path("train.tgt").read_text().split("\n")[:70])
        ),
    ),
    "no columns": Row(
        f"{TRAIN} data.train.src=null data.train.tgt=null data.train.file=train.src",
        "train.src:1: the line has 1 column, which tabs separate; column 2 is to be read "
        "(of a text in two files, name both)",
    ),
    "a line of one column": Row(
        f"{TRAIN} data.train.src=null data.train.tgt=null data.train.file=a.tsv",
        "a.tsv:2: the line has 1 column, which tabs separate; column 2 is to be read",
        write("a.tsv", "a\tb\nc d\n"),
    ),
    "swapped languages": Row(f"{TRAIN} data.valid.src=valid.tgt data.valid.tgt=valid.src", SWAPPED),
    "swapped languages of the test set": Row(
        f"{TRAIN} data.test.src=test.tgt data.test.tgt=test.src",
        SWAPPED.replace("valid", "test").replace("92%", "...%").replace(" 3%", " ...%"),
    ),
    "a swapped training text": Row(
        f"{TRAIN} data.train.src=train.tgt data.train.tgt=train.src",
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
        f"{TRAIN} vocabulary.size=9000",
        "vocabulary.size: 9000 is more than this text allows; set at most ...",
    ),
    "too few tokens": Row(
        f"{TRAIN} vocabulary.size=20",
        "vocabulary.size: 20 is too small for the characters of this text; set at least ...",
    ),
    "too few tokens for bytes": Row(
        f"{TRAIN} vocabulary.size=20 vocabulary.type=char",
        "vocabulary.size: 20 is too small for bytes and special tokens; set at least 260",
    ),
    "every pair too long": Row(
        f"{TRAIN} data.max_length=1",
        "data.max_length: every training pair is longer than 1 tokens. Increase it",
    ),
    "a run folder that is a file": Row(
        f"{TRAIN} run_dir=train.src", "run_dir: train.src is a file; choose another name"
    ),
    "a run folder below a file": Row(
        f"{TRAIN} run_dir=train.src/run",
        "run_dir: train.src/run cannot be created in .../train.src; choose another place",
    ),
    "a run lives here": Row(
        f"{TRAIN} run_dir=luong",
        "luong: already holds a run. Resume it with --resume, "
        "replace it with --overwrite, or set another run_dir",
    ),
    "a config that no run wrote": Row(
        f"{TRAIN} run_dir=mine",
        "run_dir: mine holds config.yaml, which no run wrote. Move it away, or set another run_dir",
        write("mine/config.yaml", "# precious\nname: mine\n"),
    ),
    "a config that no run wrote, to resume": Row(
        f"{TRAIN} run_dir=mine --resume",
        "mine: not a run folder, it has no config.yaml of a run, and it is not empty either; "
        "train without --resume, or set another run_dir",
        write("mine/config.yaml", "# precious\nname: mine\n"),
    ),
    "snapshots that no run wrote": Row(
        f"{TRAIN} run_dir=mine",
        "run_dir: mine holds step-7.safetensors, which no run wrote. "
        "Move it away, or set another run_dir",
        write("mine/step-7.safetensors", "precious"),
    ),
    "nothing left to resume but snapshots": Row(
        f"{TRAIN} --resume",
        "run: nothing to resume: it has metrics.jsonl, but no last.safetensors. "
        "Train again with --overwrite, which replaces the run",
        lambda: (main(["train", "config.yaml"]), remove_states("run")),
    ),
    "resuming another config": Row(
        f"{TRAIN} --resume seed=2",
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
        change_config("data:", "date:"),
    ),
    "no weights yet": Row(
        "translate -m own",
        f"own: has no best.safetensors, which the first validation writes. {NO_OTHER}",
        copied_run(remove("own/best.safetensors")),
    ),
    "weights lost": Row(
        "translate -m own",
        f"own: has no best.safetensors, which the first validation writes. {NO_OTHER}",
        copied_run(
            remove("own/best.safetensors"),
            write("own/metrics.jsonl", '{"step": 7, "valid_loss": 2.5}\n'),
        ),
    ),
    "a training that was not validated yet": Row(
        "translate -m own",
        f"own: has no best.safetensors, which the first validation writes. {NO_OTHER}",
        copied_run(
            remove("own/best.safetensors"),
            write("own/metrics.jsonl", '{"step": 7, "train_loss": 2.5}\n'),
        ),
    ),
    "weights cut off": Row(
        "translate -m own",
        "own/best.safetensors: ...",
        copied_run(truncate("own/best.safetensors", 5000)),
    ),
    "weights of another program": Row(
        "translate -m own",
        f"own/best.safetensors: not a seq2seq checkpoint. {NO_OTHER}",
        copied_run(lambda: save_file({"w": torch.ones(2)}, "own/best.safetensors")),
    ),
    "weights of another version": Row(
        "translate -m own",
        "own/best.safetensors: the header is damaged or from another version of seq2seq "
        f"(KeyError('limit')). {NO_OTHER}",
        copied_run(remove_limit),
    ),
    "a config of another version": Row(
        "translate -m own",
        "own/config.yaml:1: title: unknown key; own/config.yaml: name: required key is missing "
        "(`seq2seq train CONFIG --resume` writes it again)",
        copied_run(change("own/config.yaml", "name: tiny", "title: tiny")),
    ),
    "weights of an incompatible version": Row(
        "translate -m own",
        "own/best.safetensors: written by seq2seq 0.1.9, which has another format; use that "
        "version, or train again",
        copied_run(lambda: rewrite_header(format=1, version="0.1.9")),
    ),
    "weights of another config": Row(
        "translate -m own",
        "own/config.yaml: does not fit own/best.safetensors, trained with other values: "
        "model.hidden_size: 20 -> 22; restore them, or take both files from the same run",
        copied_run(change("own/config.yaml", "hidden_size: 20", "hidden_size: 22")),
    ),
    "no vocabulary": Row(
        "translate -m own",
        "own/vocabulary/joint.model: no such file; a run folder has its vocabulary there; "
        f"{RESTORES}",
        copied_run(remove("own/vocabulary/joint.model")),
    ),
    "a vocabulary cut off": Row(
        "translate -m own",
        "own/vocabulary/joint.model: its checksum differs from the one recorded with the weights; "
        f"it is damaged, or one of them is from another run; {RESTORES}",
        copied_run(truncate("own/vocabulary/joint.model", 999)),
    ),
    "an ensemble of two vocabularies": Row(
        "translate -m luong -m own",
        "own: has another vocabulary than luong; combine runs that share one",
        copy_with_longer_vocabulary,
    ),
    "an ensemble of two directions": Row(
        "translate -m luong -m own",
        "own: translates yy to xx but luong xx to yy; combine runs of one direction",
        OTHER_DIRECTION,
    ),
}

FILES = {
    "no such input": Row(f"{TRANSLATE} -i nowhere", "nowhere: no such file"),
    "a folder as input": Row(f"{TRANSLATE} -i folder", "folder: is a folder. Give a text file."),
    "an input that leads nowhere": Row(
        f"{TRANSLATE} -i loop",
        "loop: cannot be read (...)",
        lambda: Path("loop").symlink_to("loop"),
    ),
    "an input that is no gzip": Row(
        f"{TRANSLATE} -i a.gz",
        "a.gz: the gzip file is damaged or incomplete (Not a gzipped file (b'te')). Copy or "
        "download it again",
        write("a.gz", "text\n"),
    ),
    "an output that would be packed": Row(
        f"{TRANSLATE} -o out.gz", "out.gz: output is not compressed; omit .gz"
    ),
    "a folder as output": Row(f"{TRANSLATE} -o folder", "folder: is a folder; give a file name"),
    "an output in no folder": Row(
        f"{TRANSLATE} -o nowhere/out", "nowhere/out: there is no folder nowhere; create it first"
    ),
    "an output below a file": Row(
        f"{TRANSLATE} -o test.src/out", "test.src/out: there is no folder test.src; create it first"
    ),
    "the input as output": Row(
        f"{TRANSLATE} -i test.src -o ./test.src",
        "test.src: is already read or written by this command; choose another name",
    ),
    "the input by another name as output": Row(
        f"{TRANSLATE} -i test.src -o other",
        "other: is already read or written by this command; choose another name",
        lambda: Path("other").symlink_to("test.src"),
    ),
    "a stream to a file": Row(
        f"{TRANSLATE} --stream -o out",
        "out: -o creates the file only at the end; with --stream, use > out",
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
        copied_run_with_data(test={"src": "gone.src", "tgt": "test.tgt"}),
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
        copied_run_with_data(test={"src": "test.src", "tgt": "test.tgt"}),
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
        f"{TRANSLATE} -o /dev/full",
        "/dev/full: cannot be written (No space left on device)",
        code=1,
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
        copy_with_longer_vocabulary,
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
        copy_with_longer_vocabulary,
    ),
    "an average of one": Row(
        "average luong --last 1 -o new", "--last 1: an average needs at least 2 checkpoints"
    ),
    "an average of two directions": Row(
        "average luong own -o new",
        "own/best.safetensors: translates yy to xx but luong/best.safetensors xx to yy; combine "
        "runs of one direction",
        OTHER_DIRECTION,
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
    row.prepare()
    contents_before = contents(folder)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"zu\n")))
    capfd.readouterr()
    code = main(row.call.split())
    out, err = capfd.readouterr()
    message = re.escape(f"seq2seq: error: {row.message}\n").replace(re.escape("..."), "[^\n]*")
    assert re.fullmatch(message, err), err
    assert (code, out) == (row.code, "")
    assert contents(folder) == contents_before


def test_the_table_has_many_distinct_errors() -> None:
    assert len(TABLE) >= 60
    assert len({(row.call, row.prepare) for row in TABLE.values()}) == len(TABLE)

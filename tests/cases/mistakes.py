"""Situations in which a call fails: what prepares them, and the call with its message."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import yaml

from cases.tiny_runs import copy_with_vocabularies
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
    prepare: Preparation = lambda: None
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


def change_config(old: str, new: str) -> Preparation:
    """Change the config."""
    return change("config.yaml", old, new)


def remove(name: str) -> Preparation:
    """Remove a file."""
    return lambda: Path(name).unlink()


def remove_states(run: str) -> None:
    """Remove all checkpoints of a run except snapshots."""
    for name in ("best", "last", "previous"):
        Path(run, f"{name}.safetensors").unlink(missing_ok=True)


def copied_run(*changes: Preparation) -> Preparation:
    """Copy a run to `own` and change the copy."""

    def prepare() -> None:
        shutil.copytree("luong", "own")
        for change_copy in changes:
            change_copy()

    return prepare


def truncate(name: str, size: int) -> Preparation:
    """Truncate a file to its first bytes."""
    return lambda: Path(name).write_bytes(Path(name).read_bytes()[:size])


def remove_limit() -> None:
    """Remove the length limit from the weights, as an earlier version might have written them."""
    path = Path("own/best.safetensors")
    header = {key: value for key, value in read_header(path)[0].items() if key != "limit"}
    save_tensors(path, read_tensors(path), header)


def rewrite_header(**header: object) -> None:
    """Change the weights to ones that another version wrote."""
    path = Path("own/best.safetensors")
    save_tensors(path, read_tensors(path), {**read_header(path)[0], **header})


def copy_with_longer_vocabulary() -> None:
    """Create `own`, a run whose vocabulary has an additional unknown, empty field."""
    model = Path("luong/vocabulary/joint.model").read_bytes() + b"\x7a\x00"
    vocabulary = Vocabulary(model)
    copy_with_vocabularies(Path("luong"), Path("own"), Vocabularies(vocabulary, vocabulary))


def copied_run_with_data(**changes: object) -> Preparation:
    """Create `own`, a run whose config has other data."""

    def prepare() -> None:
        shutil.copytree("luong", "own")
        tree = yaml.safe_load(Path("own/config.yaml").read_text(encoding="utf-8"))
        tree["data"] |= changes
        Path("own/config.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")

    return prepare

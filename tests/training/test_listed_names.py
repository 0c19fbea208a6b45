"""A run that was given a list of names is resumed without it."""

from pathlib import Path

import pytest
from name_cases import name_pairs, some_names, spelled

from seq2seq.config.schema import Config, load_config
from seq2seq.runs.layout import BEST, METRICS
from seq2seq.training.loop import train

NAMES = some_names(60, seed=1)


def configured(folder: Path, run: str, steps: int, listed: Path) -> Config:
    path = folder / f"{run}.yaml"
    path.write_text(
        f"""\
name: {run}
run_dir: {(folder / run).as_posix()}
data:
  src_lang: xx
  tgt_lang: mr
  train: {{file: {(folder / "train.tsv").as_posix()}}}
  valid: {{file: {(folder / "valid.tsv").as_posix()}}}
vocabulary: {{size: 310, names: {{placeholders: {listed.as_posix()}}}}}
model: {{embedding_size: 8, hidden_size: 8}}
training: {{max_steps: {steps}, batch_tokens: 200, validate_every: 4, precision: float32}}
decoding: {{max_length: 5}}
""",
        encoding="utf-8",
    )
    return load_config(path)


@pytest.mark.thorough
@pytest.mark.usefixtures("no_engine")
def test_a_resumed_run_needs_neither_the_list_nor_an_equal_one(tmp_path: Path) -> None:
    for split, count in (("train", 400), ("valid", 10)):
        pairs = name_pairs(NAMES, count, seed=len(split))
        text = "".join(f"{pair.src}\t{pair.tgt}\n" for pair in pairs)
        (tmp_path / f"{split}.tsv").write_text(text, encoding="utf-8")
    listed, other = tmp_path / "names.txt", tmp_path / "other.txt"
    listed.write_text("".join(f"{spelled(name)}\n" for name in NAMES[:9]), encoding="utf-8")
    other.write_text("\u0915\u092e\u0932\n", encoding="utf-8")
    uninterrupted = train(configured(tmp_path, "a", 12, listed), "cpu")
    run = train(configured(tmp_path, "b", 4, listed), "cpu")
    stored = (run / "vocabulary" / "names.json").read_bytes()
    listed.unlink()
    train(configured(tmp_path, "b", 8, listed), "cpu", resume=True)
    train(configured(tmp_path, "b", 12, other), "cpu", resume=True)
    for name in (METRICS, BEST):
        assert (run / name).read_bytes() == (uninterrupted / name).read_bytes()
    assert (run / "vocabulary" / "names.json").read_bytes() == stored

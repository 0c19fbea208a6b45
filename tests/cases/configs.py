"""Configs of the fewest keys."""

MINIMAL = """\
name: tiny
run_dir: runs/tiny
data:
  src_lang: en
  tgt_lang: de
  train: {src: train.en, tgt: train.de}
  valid: {file: valid.tsv}
training: {max_epochs: 3}
"""

"""Train, translate and evaluate on the demo corpus (`make demo`), printing each command."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from seq2seq.cli.main import main
from seq2seq.runtime.console import printable

# A second thread hardly helps such a small model. Set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

RUN = Path("runs/demo")
SENTENCES = (
    "The small cat is black.",
    "The actors are opening a window.",
    "Our uncle bought a new house in August 1992.",
    "She did not write my beautiful poem.",
    "The agreement on the European Economic Area was signed in August 1992.",
)


def demo() -> None:
    """Unpack, train, translate, evaluate and plot; stop at the first step that fails."""
    say("1. Unpack the demo corpora: English with French and with Marathi")
    run("python scripts/unpack_demo.py")
    say("2. Train on data/demo; the run folder is runs/demo")
    run(f"seq2seq train configs/demo.yaml run_dir={RUN} --overwrite")
    say("3. Translate a handful of sentences that are not in the training data")
    handful = RUN / "handful.en"
    handful.write_text("".join(f"{line}\n" for line in SENTENCES), encoding="utf-8", newline="\n")
    run(f"seq2seq translate -m {RUN} -i {handful} -o {RUN / 'handful.fr'}")
    translations = (RUN / "handful.fr").read_text(encoding="utf-8").splitlines()
    for pair in zip(SENTENCES, translations, strict=True):
        print(printable("   {}\n-> {}".format(*pair)))
    say("4. Score the test set: 500 sentences, none of them in the training data")
    run(f"seq2seq evaluate -m {RUN} -o {RUN / 'test.hyp.fr'}")
    say("5. Plot the attention weights")
    run(f"seq2seq attention -m {RUN} -i {handful} -o {RUN / 'attention.png'}")
    run(f"seq2seq attention -m {RUN} -i {handful} -o {RUN / 'attention.html'}")
    print(NEXT)


NEXT = f"""
Done. Files:
  data/demo, data/demo-*            corpora: train, valid and test, one sentence per line
  {RUN / "best.safetensors"}          the model, next to its log, metrics and vocabulary
  {RUN / "test.hyp.fr"}               translations of the test set
  {RUN / "attention.png"}             note the reordering in "European Economic Area"; also .html

What to try next (first `source .venv/bin/activate`, or write .venv/bin/seq2seq):
  echo "The red car is old." | seq2seq translate -m {RUN}
  seq2seq train configs/demo-en-mr.yaml                             English to Marathi
  echo "Rahul is a good boy" | seq2seq translate -m runs/demo-en-mr
  seq2seq train configs/demo.yaml model.decoder=luong run_dir=runs/demo-luong
  seq2seq compare configs/compare-demo-lengths.yaml --split test    attention and long sentences
  Your own text: README.md, "Your own text" (this model is tiny and trains for two minutes)."""


def say(text: str) -> None:
    """Print a heading."""
    print(f"\n{text}", flush=True)


def run(command: str) -> None:
    """Print a command, then run it (`seq2seq` in this process)."""
    print(f"$ {command}", flush=True)
    program, *arguments = shlex.split(command)
    if program == "seq2seq":
        code = main(arguments)
    else:
        code = subprocess.run([sys.executable, *arguments], check=False).returncode
    if code:
        sys.exit(code)


if __name__ == "__main__":
    demo()

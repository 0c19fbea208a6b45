"""The `seq2seq` command, also as `python -m seq2seq`: the table of its subcommands."""

import atexit
import signal
import sys
from collections.abc import Sequence

CLI = "seq2seq.cli"
TOOLS = "seq2seq.tools.commands"
GROUPS = {  # headings, and their commands with package and summary; modules have _ for -
    "start": {
        "demo": (CLI, "train, translate and evaluate on the corpora that come with the package"),
        "download": (TOOLS, "fetch a public parallel corpus"),
        "split": (TOOLS, "divide a parallel text into train, valid and test without leaks"),
        "init": (TOOLS, "write a config that suits a text, this machine and the time for training"),
        "check": (TOOLS, "inspect the data and the training cost of a config"),
        "configs": (CLI, "list the configs that come with the package, or copy some"),
        "explain": (CLI, "describe a key of the config"),
        "schema": (CLI, "print the JSON schema of a config, for editors"),
        "completion": (CLI, "print a script that completes commands in a shell"),
    },
    "train": {
        "train": (CLI, "train a model from a YAML config"),
        "distill-train": (TOOLS, "train the best model of one text: teachers, then their student"),
        "compare": (TOOLS, "train and score variants of a config on the same data and seeds"),
        "runs": (TOOLS, "list the runs in a folder with their scores"),
        "average": (TOOLS, "average the weights of several checkpoints"),
        "distill": (
            TOOLS,
            "translate training text by a teacher, for a student (knowledge distillation)",
        ),
        "back-translate": (
            TOOLS,
            "make a training corpus from monolingual text of the target language",
        ),
    },
    "translate and evaluate": {
        "translate": (CLI, "translate text, line by line"),
        "evaluate": (CLI, "compute BLEU, chrF and TER of a run or of existing translations"),
        "score": (TOOLS, "compute the log-probabilities of given translations"),
        "attention": (TOOLS, "plot the attention weights of translations"),
        "report": (TOOLS, "write one page about a run: scores, curves, sentences, attention"),
    },
    "share": {
        "serve": (TOOLS, "serve a web page and an HTTP API that translate"),
        "export": (TOOLS, "write a trained model as ONNX, to translate without torch"),
    },
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; Ctrl-C ends the process at once while modules are imported, and at exit."""
    waits = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if waits:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)
    from seq2seq.cli.main import main as run_command

    try:
        if waits:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run_command(GROUPS, sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:  # before the command, or after it
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())

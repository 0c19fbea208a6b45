"""Packages that not every installation has, and the command that installs them."""

from collections.abc import Iterator
from contextlib import contextmanager

from seq2seq.runtime.errors import UserError

# Needed but for translation by an exported model; torch is last, as the others come with it.
TRAIN = ("pydantic", "yaml", "sacrebleu", "safetensors", "tabulate", "tqdm", "torch")


@contextmanager
def needs_train(task: str) -> Iterator[None]:
    """Convert a failed import of a package of training into a UserError."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(error, task) or error from None


def missing_extra(error: ModuleNotFoundError, task: str) -> UserError | None:
    """Return the message for a package of training that is missing, None for others.

    `task` is what needs it, such as a subcommand.
    """
    name = (error.name or "").partition(".")[0]
    if name not in TRAIN:
        return None
    need = f"{task} needs PyTorch and what comes with it ({name} is not installed)"
    return not_installed(need)


def not_installed(need: str, extra: str = "", otherwise: str = "") -> UserError:
    """Return the message for a need, such as `Parquet needs pyarrow`, that an extra meets.

    Without an extra, the packages that any installation has are missing.
    """
    return UserError(f"{need}. Run: {install_command(extra)}{otherwise}")


def install_command(extra: str) -> str:
    """Return the command that installs an extra, or what else the package requires."""
    return f"pip install 'seq2seq-attention[{extra}]'" if extra else "pip install seq2seq-attention"

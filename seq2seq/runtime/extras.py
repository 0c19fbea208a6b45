"""Packages that not every installation has, and the extra that installs them."""

from collections.abc import Iterator
from contextlib import contextmanager

from seq2seq.runtime.errors import UserError

# torch is last: it is what users know `train` by, the others come with it.
TRAIN = ("pydantic", "yaml", "sacrebleu", "safetensors", "tabulate", "tqdm", "torch")


@contextmanager
def needs_train(task: str) -> Iterator[None]:
    """Convert a failed import of a package of the extra `train` into a UserError."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(error, task) or error from None


def missing_extra(error: ModuleNotFoundError, task: str) -> UserError | None:
    """Return the message for a package of the extra `train` that is missing, None for others.

    `task` is what needs it, such as a subcommand.
    """
    name = (error.name or "").partition(".")[0]
    if name not in TRAIN:
        return None
    return UserError(
        f"{task} needs PyTorch and what comes with it ({name} is not installed): "
        "pip install 'seq2seq-attention[train]'"
    )

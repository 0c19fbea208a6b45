"""Train, evaluate and use attention-based recurrent translation models.

From Python: `load_config` reads a YAML file into a `Config`, `train` trains a model and returns a
`TrainedRun`, and `Translator` translates with it. The command line is `seq2seq` or
`python -m seq2seq`. All names are imported on first use: `import seq2seq` loads no torch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2seq.config.schema import Config, load_config
    from seq2seq.inference.translator import Translator
    from seq2seq.training.trained_run import train

__version__ = "0.3.0"
__all__ = ["Config", "Translator", "load_config", "train"]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "__doc__"])


def __getattr__(name: str) -> object:
    """Import a public name on first use; raises ModuleNotFoundError with the extra it needs."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name == "Translator":
            from seq2seq.inference.translator import Translator

            return Translator
        if name == "train":
            from seq2seq.training.trained_run import train

            return train
        from seq2seq.config import schema

        return getattr(schema, name)
    except ModuleNotFoundError as error:
        from seq2seq.runtime.errors import missing_extra

        reason = missing_extra(error, f"seq2seq.{name}")
        if reason is None:
            raise
        raise ModuleNotFoundError(str(reason), name=error.name) from None

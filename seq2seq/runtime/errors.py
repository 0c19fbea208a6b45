"""Errors reported to the user as one line: place, problem, remedy.

Messages name the arguments of functions, as `argument` spells them: a Python caller reads
`n_best=3`, and the command line sets a spelling of its own, `--n-best 3`.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

from seq2seq.runtime.console import one_line

Spelling = Callable[[str, object], str]
# Needed but for translation by an exported model; torch is last, as the others come with it.
TRAIN = ("pydantic", "yaml", "sacrebleu", "safetensors", "tabulate", "tqdm", "torch")

_CPU_TORCH = "pip install seq2seq-attention --extra-index-url https://download.pytorch.org/whl/cpu"
MAX_LINE = 480  # characters of a line of a message: 500 with what is printed before it
_LEFT_OUT = " ... "
_OUT_OF_MEMORY = re.compile(
    "out of memory|allocate memory|not enough memory|bad_alloc"
    "|STATUS_ALLOC_FAILED|ALLOCATION_FAILED"  # cuBLAS, cuDNN
)


def python_spelling(name: str, value: object = None) -> str:
    """Spell an argument as in a call of a Python function."""
    if value is None:
        return name
    return f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}"


_spelling: ContextVar[Spelling] = ContextVar("spelling", default=python_spelling)


@contextmanager
def arguments_spelled(spelling: Spelling) -> Iterator[None]:
    """Spell the arguments in messages in this way within the context."""
    token = _spelling.set(spelling)
    try:
        yield
    finally:
        _spelling.reset(token)


@contextmanager
def argument_spelled(name: str, text: str) -> Iterator[None]:
    """Spell one argument in this way within the context, and the others as before."""
    outer_spelling = _spelling.get()
    with arguments_spelled(lambda key, value: text if key == name else outer_spelling(key, value)):
        yield


def argument(name: str, value: object = None) -> str:
    """Return an argument of a function, with its value unless that is None, as the caller does."""
    return _spelling.get()(name, value)


class ReportedError(Exception):
    """Error whose arguments are the lines of its message, mostly a single one.

    A line never becomes two, whatever names are in it. The first begins with any `argument`.
    """

    def __init__(self, *lines: str, argument: str | None = None, value: object = None) -> None:
        if argument is not None:
            lines = (f"{_spelling.get()(argument, value)}: {lines[0]}", *lines[1:])
        super().__init__(*lines)
        self.argument = argument

    @property
    def lines(self) -> list[str]:
        """The lines, with control characters escaped, of at most MAX_LINE characters."""
        return [shorten_middle(one_line(str(line))) for line in self.args]

    def __str__(self) -> str:
        return "\n".join(self.lines)


class UserError(ReportedError, ValueError):
    """Invalid command, config or data, found before any work starts (exit code 2)."""


class RunError(ReportedError, RuntimeError):
    """Failure of work that has already started (exit code 1)."""


class UnsuitableRun(ReportedError):
    """Failure that lies in the config of a run: it diverges or needs too much memory."""


class TooLarge(UnsuitableRun, UserError):
    """Model that does not fit into memory."""


class TrainingFailed(UnsuitableRun, RunError):
    """Training that diverged or ran out of memory."""


class UnreadableFile(UserError):
    """Existing file that cannot be opened now; nothing is known of its content."""


class DamagedFile(UserError):
    """Corrupt file in a run folder: its content is not what was written to it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an allocation failed in Python, on the CPU or in CUDA."""
    is_named_so = isinstance(error, RuntimeError) and bool(_OUT_OF_MEMORY.search(str(error)))
    return is_named_so or isinstance(error, MemoryError)


def did_you_mean(word: str, words: Iterable[str], similar: float = 0.6, prefix: str = "") -> str:
    """Return "; did you mean 'X'?" with the closest word, of a minimum similarity, or nothing."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=similar)
    return f"; did you mean '{prefix}{close[0]}'?" if close else ""


_config: ContextVar[Path | None] = ContextVar("config", default=None)


def remember_config(path: Path) -> None:
    """Let hints to missing files look beside a config, the last one that was read, too."""
    _config.set(path)


def suggest_file(path: Path) -> str:
    """Return the hint `did_you_mean` gives for a missing file, or that its folder is missing."""
    config = _config.get()
    folder = config.parent if config is not None else Path()
    if folder != Path() and not path.is_absolute() and (folder / path).exists():
        text = f"{folder / path} exists, but paths are relative to the working directory"
        return f"; {text}: cd {folder}"
    if path.parts[:1] == ("~",):
        return "; ~ is not replaced here: write the folder out"
    if config is not None and _has_command_for(path, config):
        return f"; the comments of {config} have the commands that make it"
    if not path.parent.is_dir():
        if re.fullmatch("multi30k|anki-eng-[a-z]+", name := path.parent.name):
            return f"; `seq2seq download {name}` fetches this corpus"
        return f"; the folder {path.parent} does not exist"
    with suppress(OSError):
        names = sorted(entry.name for entry in path.parent.iterdir())
        names = [name for name in names if path.name[:1] == "." or name[0] != "."]
        folder_prefix = str(path).removesuffix(path.name)
        for name in names:
            if path.name and Path(name).stem == path.name:
                return f"; did you mean '{folder_prefix}{name}'?"
        return did_you_mean(path.name, names, prefix=folder_prefix)
    return ""


def _has_command_for(path: Path, config: Path) -> bool:
    """Return whether a command in the comments of a config makes a file, such as cut-{}.tsv.gz."""
    if not config.is_file():
        return False
    with suppress(OSError, UnicodeDecodeError):
        lines = [line.split() for line in config.read_text(encoding="utf-8").splitlines()]
        patterns = [
            re.escape(word).replace(r"\{\}", "[^/]+")
            for first, *words in filter(None, lines)
            if first.startswith("#")
            for word in words
            if "{}" in word
        ]
        return any(re.fullmatch(pattern, path.as_posix()) for pattern in patterns)
    return False


def shorten_middle(text: str, max_length: int = MAX_LINE) -> str:
    """Return a text of at most `max_length` characters: its start, and its end with the remedy."""
    half = (max_length - len(_LEFT_OUT)) // 2
    return text if len(text) <= max_length else f"{text[:half]}{_LEFT_OUT}{text[-half:]}"


def shorten(text: str) -> str:
    """Return the first 60 characters of a text, the last of them "..." if there are more."""
    return text if len(text) <= 60 else text[:57] + "..."


@contextmanager
def needs_train(task: str) -> Iterator[None]:
    """Convert a failed import of a package of training into a UserError."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(error, task) or error from None


def missing_extra(error: ModuleNotFoundError, task: str) -> UserError | None:
    """Return the message for a package of training that a task misses, None for others.

    Without PyTorch it names all the small ones that are missing: an installation of the package
    itself would add PyTorch, with CUDA.
    """
    name = (error.name or "").partition(".")[0]
    if name not in TRAIN:
        return None
    need = f"{task} needs a package that is not installed ({name})"
    if name == "torch":
        return UserError(f"{need}. Run: {_CPU_TORCH}; with CUDA: pip install seq2seq-attention")
    if is_installed("torch"):
        return not_installed(need)
    missing_modules = (module for module in TRAIN[:-1] if not is_installed(module))
    return UserError(f"{need}. Run: pip install {' '.join(map(_distribution, missing_modules))}")


def not_installed(need: str, extra: str = "", otherwise: str = "") -> UserError:
    """Return the message for a need, such as `plot needs matplotlib`, that an extra meets.

    Without PyTorch it names the packages of the extra: the extra itself would install PyTorch.
    """
    package = f"'seq2seq-attention[{extra}]'" if extra else "seq2seq-attention"
    if extra and not is_installed("torch") and (packages := _packages_of(extra)):
        package = " ".join(packages)
    return UserError(f"{need}. Run: pip install {package}{otherwise}")


def is_installed(module: str) -> bool:
    """Return whether a module of another package can be imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # of a module that is hidden
        return False


def _packages_of(extra: str) -> list[str]:
    """Return the packages of an extra, as the installed distribution records them."""
    with suppress(PackageNotFoundError):
        rows = (row.partition(";") for row in requires("seq2seq-attention") or ())
        requirements = [
            row for row, _, marker in rows if re.search(f"extra == ['\"]{extra}['\"]", marker)
        ]
        return [re.split(r"[\s<>=!~\[(]", row.strip())[0] for row in requirements]
    return []


def _distribution(module: str) -> str:
    return {"yaml": "pyyaml"}.get(module, module)

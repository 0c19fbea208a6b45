"""Name arguments as the caller does: options on the command line, keyword arguments in Python."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

from seq2seq.runtime.errors import RunError, UserError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_on_command_line: ContextVar[bool] = ContextVar("on_command_line", default=False)
PYTHON_TERMS = (  # patterns of options in messages, and the arguments of the same meaning
    (r"\(command line\)", "(override)"),
    (r"--device ([^\s:;,]+(?::\d+)?)", r"device='\1'"),
    (r"--init-from ([^\s:;,]+)$", r"init_from=\1"),
    (r"--init-from (RUN|[^\s:;,]*[/\\.][^\s:;,]*)", r"init_from=\1"),
    (r"--init-from", "init_from"),
    (r"--resume", "resume=True"),
    (r"--overwrite", "overwrite=True"),
    (r"--int8", "int8=True"),
    (r"--float16", "float16=True"),
    (r"--shortlist", "shortlist=True"),
    (r"--base-url", "base_url"),
    (r"--output\b", "output"),
    (r"--n-best (\d+)", r"n_best=\1"),
    (r"--sample\b", "sampling"),
    (r"--heads\b", "head_attention"),
    (r"--(temperature|seed|glossary|constraints|groups|diversity|mbr)\b", r"\1"),
    (r"--top-([kp])\b", r"top_\1"),
    (r"(?<!\S)-b(?!\w)", "beam_size"),
)
_COMMAND = re.compile("(`[^`]*`)")  # a command in a message stays a command


@contextmanager
def on_command_line() -> Iterator[None]:
    """Within this context, messages name options of the command line."""
    token = _on_command_line.set(True)
    try:
        yield
    finally:
        _on_command_line.reset(token)


def in_callers_terms(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let errors of a public function name its arguments, unless the command line calls it."""

    @wraps(function)
    def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except (UserError, RunError) as error:
            if error.args and not _on_command_line.get():
                error.args = tuple(in_python_terms(str(line)) for line in error.args)
            raise

    return wrapper


def in_python_terms(message: str) -> str:
    """Replace the options that a message names by arguments of Python functions."""
    parts = _COMMAND.split(message)
    for pattern, argument in PYTHON_TERMS:
        parts[::2] = [re.sub(pattern, argument, part) for part in parts[::2]]
    return "".join(parts)

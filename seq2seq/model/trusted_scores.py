"""Scores from outside of the package that the user names: no others are imported.

A config or a run folder may come from a stranger, and importing a module runs its code.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import MappingProxyType, ModuleType

VARIABLE = "SEQ2SEQ_SCORES"  # names with spaces between, for servers and workers

# The class of each name, or None for one to be imported.
_trusted: ContextVar[Mapping[str, type | None]] = ContextVar(
    "trusted", default=MappingProxyType({})
)


@contextmanager
def trusted_scores(scores: Iterable[str | type]) -> Iterator[list[str | type]]:
    """Trust scores, classes or names such as `my_scores:Cosine`, within the context; yield them.

    Raises TypeError for anything else, such as a single name in place of several.
    """
    expected = "classes, or names such as ['my_scores:Cosine']"
    if isinstance(scores, str | type):
        raise TypeError(f"scores: must be a list of {expected}, not {scores!r}")
    listed = [*scores]
    trusted = dict[str, type | None](_trusted.get())
    for score in listed:
        if isinstance(score, type):
            trusted[f"{score.__module__}:{score.__name__}"] = score
        elif isinstance(score, str) and is_score_name(score):
            trusted.setdefault(score)
        else:
            raise TypeError(f"scores: must be {expected}, not {score!r}")
    token = _trusted.set(trusted)
    try:
        yield listed
    finally:
        _trusted.reset(token)


def is_score_name(text: str) -> bool:
    """Return whether a text has the form `package.module:Class`."""
    module, _, kind = text.partition(":")
    return text.isascii() and all(map(str.isidentifier, (*module.split("."), kind)))


def is_trusted(name: str) -> bool:
    """Return whether the user names a score, by a context or the environment."""
    return name in _trusted.get() or name in os.environ.get(VARIABLE, "").split()


def trusted_object(name: str) -> object:
    """Return the class that was given for a name, or import it.

    Raises whatever its module raises when it is imported.
    """
    if (trusted := _trusted.get().get(name)) is not None:
        return trusted
    module, _, attribute = name.partition(":")
    score_class: object = getattr(import_module(module), attribute)
    return score_class


def imported_object(name: str) -> object | None:
    """Return what a module that is imported already holds under a name, or None; run no code.

    Attribute access could: modules may have `__getattr__`, or be loaded on first use.
    """
    module, _, attribute = name.partition(":")
    loaded = sys.modules.get(module)
    if not issubclass(type(loaded), ModuleType):
        return None
    names: dict[str, object] = object.__getattribute__(loaded, "__dict__")
    return names.get(attribute)

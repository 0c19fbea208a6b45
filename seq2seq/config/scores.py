"""Names of attention scores: those of the package, and classes from outside."""

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

ADDITIVE_SCORES = ("additive", "normed_additive", "coverage")
_SIZED_SCORES = (*ADDITIVE_SCORES, "concat", "scaled_dot")
SCORES = (*ADDITIVE_SCORES, "dot", "general", "concat", "scaled_dot", "location")
EXTERNAL = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"  # package.module:Class


def is_external(score: object) -> bool:
    """Return whether a score is the name of a class outside of the package."""
    return isinstance(score, str) and re.fullmatch(EXTERNAL, score, re.ASCII) is not None


def is_sized(score: object) -> bool:
    """Return whether a score takes `attention_size`."""
    return score in _SIZED_SCORES or is_external(score)


def fits_bahdanau(score: str) -> bool:
    """Return whether the decoder of Bahdanau et al. takes the score."""
    return score in ADDITIVE_SCORES or is_external(score)


def _check_score(score: str) -> str:
    """Refuse a string that is neither a score of the package nor the name of a class."""
    if score in SCORES or is_external(score):
        return score
    expected = f"{', '.join(map(repr, SCORES))} or a class such as my_scores:Cosine"
    raise PydanticCustomError("literal_error", "must be {expected}", {"expected": expected})


Score = Annotated[
    str,
    AfterValidator(_check_score),
    WithJsonSchema(
        {"anyOf": [{"enum": list(SCORES)}, {"type": "string", "pattern": f"^{EXTERNAL}$"}]}
    ),
]

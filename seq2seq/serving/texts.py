"""Fields of requests that are a text or a list of texts."""

from collections.abc import Callable
from typing import Annotated

from pydantic import ValidationError, WrapValidator
from pydantic_core import PydanticCustomError


def _checked(given: object, validate: Callable[[object], str | list[str]]) -> str | list[str]:
    """Raise one error in place of one for each type."""
    try:
        return validate(given)
    except ValidationError:
        raise PydanticCustomError("texts", "must be a string or a list of strings") from None


Texts = Annotated[str | list[str], WrapValidator(_checked)]


def text_list(texts: str | list[str]) -> list[str]:
    """Return the texts of a field as a list."""
    return [texts] if isinstance(texts, str) else texts

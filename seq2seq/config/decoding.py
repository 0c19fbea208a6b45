"""The `decoding` section of a config: the record of the options of search as a pydantic model."""

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationInfo, create_model, field_validator

from seq2seq.config.fields import Bool, Int, Section, key, within
from seq2seq.config.search_options import Decoding, Item, kind_of, option_of

_READ = {bool: Bool, int: Int, float: Annotated[float, Field(allow_inf_nan=False)]}


def _declared(item: Item) -> tuple[Any, Any]:
    """Return the type of a key, which reads YAML's text, and its default and description."""
    kind = kind_of(item)
    read: Any = _READ.get(kind, kind)
    if kind in (int, float):
        read = Annotated[read, within(option_of(item).bounds)]
    declared = read if item.type is kind else read | None
    return declared, key(item.default, option_of(item).description)


def _check_lengths(cls: type, value: int, info: ValidationInfo) -> int:  # noqa: ARG001
    longest = info.data.get("max_length")
    if longest is not None and value > longest:
        raise ValueError(f"is larger than max_length ({longest})")
    return value


_keys: dict[str, Any] = {item.name: _declared(item) for item in fields(Decoding)}
_bases: Any = (Section, Decoding)  # so that `dataclasses.replace` and `asdict` take a section
_section = create_model(
    "DecodingConfig",
    __base__=_bases,
    __doc__="Search for translations: greedy or beam.",
    __module__=__name__,
    __validators__={"_check_lengths": field_validator("min_length")(_check_lengths)},
    **_keys,
)
if TYPE_CHECKING:
    DecodingConfig = Decoding  # mypy cannot read a model that is made
else:
    DecodingConfig = _section

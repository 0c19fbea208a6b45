"""Search settings of one call: together with the `decoding` section, the options of search."""

from dataclasses import dataclass

from seq2seq.config.search_options import (
    CallOptions,
    Sampling,
    conflict_in,
    fault_of,
    plain_options,
)
from seq2seq.runtime import argument_types
from seq2seq.runtime.errors import UserError, argument
from seq2seq.text.glossary import Glossary


@dataclass(frozen=True)
class SearchSettings(CallOptions):
    """Requirements on all translations of a call, and the kind of search; see `CallOptions`."""

    glossary: Glossary | None = None

    def __post_init__(self) -> None:
        """Raise UserError for values that are out of range or do not go together."""
        forbidden = argument_types.text_list(self.forbidden, "forbidden", "words and phrases")
        object.__setattr__(self, "forbidden", tuple(forbidden))
        _check_plain(self)
        _check_plain(self.sampling or Sampling())
        check_together(self)


def _check_plain(options: CallOptions | Sampling) -> None:
    """Raise UserError for the first value out of range."""
    for item in plain_options(type(options)):
        value = getattr(options, item.name)
        if (rule := fault_of(item, value)) is not None:
            raise UserError(rule, argument=item.name, value=value)


def check_together(settings: CallOptions, **more: object) -> None:
    """Raise UserError for options that exclude each other; `more` are those beside the settings."""
    if (conflict := conflict_in(settings, **more)) is not None:
        this, that = map(argument, conflict)
        raise UserError(f"{this} cannot be used with {that}; remove one of them")


DEFAULT_SETTINGS = SearchSettings()

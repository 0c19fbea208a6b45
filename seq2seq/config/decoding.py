"""The `decoding` section of a config: search for translations."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from seq2seq.config.fields import Bool, Count, CountOrZero, NotNegative, Positive, Section, key


class DecodingConfig(Section):
    """Search for translations: greedy or beam."""

    beam_size: Annotated[Count, Field(le=1_000_000)] = key(5, "hypotheses kept; 1: greedy search")
    length_penalty: Annotated[NotNegative, Field(le=10)] = key(1.0, "exponent of length in scores")
    coverage_penalty: NotNegative = key(0.0, "weight in beam search, Wu et al. (2016); 0: off")
    no_repeat_ngram: CountOrZero = key(0, "size of n-grams that must not repeat; 0: off")
    replace_unknown: Bool = key(False, "replace unknown words by source words, by attention")
    max_length: Annotated[Count, Field(le=100_000)] | None = key(
        None, "maximum tokens; null: estimated from the training text"
    )
    min_length: Annotated[CountOrZero, Field(le=10_000)] = key(
        0, "minimum tokens, end-of-sentence not counted"
    )
    repetition_penalty: Annotated[Positive, Field(ge=1, le=100)] = key(
        1.0, "factor on the log-probabilities of tokens that a hypothesis has; 1: off"
    )

    @field_validator("min_length")
    @classmethod
    def _check_lengths(cls, value: int, info: ValidationInfo) -> int:
        longest = info.data.get("max_length")
        if longest is not None and value > longest:
            raise ValueError(f"is larger than max_length ({longest})")
        return value

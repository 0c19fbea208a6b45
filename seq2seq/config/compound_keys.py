"""Keys of a config whose value is one word or number, or a map if there is more to say."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import core_schema

from seq2seq.config.compound import REQUIRED, Choice, NamedChoice, OneOrEach, as_map_of
from seq2seq.config.fields import Bool, Count, Fraction, NotNegative, Size
from seq2seq.config.scores import EXTERNAL, SCORES, Score


class BatchTokens(int):
    """Target tokens of a batch, with the number of batches per step."""

    accumulate: int

    def __new__(cls, tokens: int, accumulate: int = 1) -> "BatchTokens":
        batch = super().__new__(cls, tokens)
        batch.accumulate = accumulate
        return batch

    def __getnewargs__(self) -> tuple[int, int]:  # type: ignore[override]
        return int(self), self.accumulate

    def __eq__(self, other: object) -> bool:
        same = not isinstance(other, BatchTokens) or self.accumulate == other.accumulate
        return same and int.__eq__(self, other) is True

    __hash__ = int.__hash__

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: Any, _handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.int_schema()  # for the default in the JSON schema


class _BatchValue(NamedTuple):
    tokens: Count
    accumulate: Count


class _BatchTokensValue(OneOrEach):
    """A number of tokens, or a map, that is read as `BatchTokens`."""

    def __get_pydantic_core_schema__(
        self, _source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        validated = core_schema.no_info_after_validator_function(
            lambda batch: BatchTokens(*batch), handler.generate_schema(_BatchValue)
        )
        return core_schema.no_info_before_validator_function(
            self.read,
            validated,
            serialization=core_schema.plain_serializer_function_ser_schema(self.dump),
        )

    def read(self, value: object) -> object:
        """Return tokens and batches per step; raise ValueError for another key."""
        if isinstance(value, BatchTokens):
            return int(value), value.accumulate
        return super().read(as_map_of(value))

    def dump(self, value: Any) -> object:
        """Return the tokens alone, or with the batches per step."""
        return super().dump(_BatchValue(int(value), getattr(value, "accumulate", 1)))


class Layers(NamedTuple):
    """Numbers of layers of encoder and decoder, and whether layers add their input."""

    encoder: Annotated[Count, Field(le=64)]
    decoder: Annotated[Count, Field(le=64)]
    residual: Bool = False


LAYERS = OneOrEach(
    {"encoder": 1, "decoder": 1, "residual": False},
    {"type": ["integer", "boolean"], "minimum": 1, "maximum": 64},
    "{encoder: 2, decoder: 4}",
    apart=("residual",),
)


class DropoutConfig(NamedTuple):
    """Dropout probabilities of the parts of the network."""

    word: Fraction  # a token's complete embedding, in source and target
    embedding: Fraction  # each entry of the embeddings
    hidden: Fraction  # outputs of layers that other layers and the attention read
    output: Fraction  # the decoder's output layer


DROPOUT = OneOrEach(
    {"word": 0.0, "embedding": 0.2, "hidden": 0.2, "output": 0.2},
    {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    "{word: 0.1, embedding: 0.2, hidden: 0.2, output: 0.2}",
    apart=("word",),
)


class LocalWindow(NamedTuple):
    """Window of local attention: its kind, and the positions on each side of its centre."""

    kind: Literal["local_m", "local_p"]
    width: Size


_WIDTH = 10  # D of Luong et al. (2015), section 3.2
WINDOW = Choice(
    {"local_m": _WIDTH, "local_p": _WIDTH}, {"type": "integer", "minimum": 1}, "{local_p: 5}"
)


class _ScoreValue(NamedTuple):
    name: Score
    heads: Size | None


class _ScoreChoice(NamedChoice):
    """Scores of the package, and classes from outside, which have no heads."""

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of both forms, and of a class."""
        schema = super().json_schema()
        schema["anyOf"].append({"type": "string", "pattern": f"^{EXTERNAL}$"})
        return schema


SCORE = _ScoreChoice(
    {**dict.fromkeys(SCORES), "scaled_dot": 1},
    {"type": "integer", "minimum": 1},
    "{scaled_dot: 4}",
    _ScoreValue,
)


class _OptimizerValue(NamedTuple):
    name: Literal["adam", "adamw", "sgd"]
    weight_decay: NotNegative


OPTIMIZER = NamedChoice(
    {"adam": 0.0, "adamw": 0.0, "sgd": 0.0},
    {"type": "number", "minimum": 0},
    "{adamw: 0.01}",
    _OptimizerValue,
)


class _DecayValue(NamedTuple):
    name: Literal["constant", "inverse_sqrt", "linear", "cosine", "plateau"]
    factor: Fraction | None


DECAY = NamedChoice(
    {"constant": None, "inverse_sqrt": None, "linear": None, "cosine": None, "plateau": 0.5},
    {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    "{plateau: 0.7}",
    _DecayValue,
)


class _MetricValue(NamedTuple):
    name: Literal["bleu", "chrf", "loss"]
    min_improvement: NotNegative


METRIC = NamedChoice(
    {"bleu": 0.0, "chrf": 0.0, "loss": 0.0},
    {"type": "number", "minimum": 0},
    "{bleu: 0.2}",
    _MetricValue,
)


class _ScheduleValue(NamedTuple):
    name: Literal["linear", "exponential", "inverse_sigmoid"]
    steps: Count


SCHEDULE = NamedChoice(
    {"linear": REQUIRED, "exponential": REQUIRED, "inverse_sigmoid": REQUIRED},
    {"type": "integer", "minimum": 1},
    "{linear: 5000}",
    _ScheduleValue,
)


class _NamesValue(NamedTuple):
    name: Literal["placeholders", "invented"]
    rate: Fraction | None


NAMES = NamedChoice(
    {"placeholders": None, "invented": 0.5},
    {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
    "{invented: 0.3}",
    _NamesValue,
)


class LossWeights(NamedTuple):
    """Weights of the losses beside cross-entropy; 0: off."""

    consistency: NotNegative
    coverage: NotNegative
    guided_alignment: NotNegative


class _EachLoss(OneOrEach):
    """A map only: the losses have little in common."""

    def read(self, value: object) -> object:
        """Return the weight of each loss; raise ValueError for another key."""
        if not isinstance(value, Mapping):
            raise ValueError(f"write a map, such as {self.example}")
        return super().read(value)

    def dump(self, value: Any) -> object:
        """Return the weights that are not 0."""
        return {name: weight for name, weight in value._asdict().items() if weight}

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the map."""
        schema: dict[str, Any] = super().json_schema()["anyOf"][1]
        return schema


LOSSES = _EachLoss(
    {"consistency": 0.0, "coverage": 0.0, "guided_alignment": 0.0},
    {"type": "number", "minimum": 0},
    "{consistency: 1, coverage: 0.5}",
)


BATCH_TOKENS = _BatchTokensValue(
    {"tokens": 1500, "accumulate": 1},
    {"type": "integer", "minimum": 1},
    "{tokens: 1500, accumulate: 4}",
    apart=("accumulate",),
)

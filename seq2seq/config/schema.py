"""Config of a run: a YAML file and `section.key=value` overrides become a complete `Config`.

YAML scalars are read as text and take their type from the schema alone: `3e-4` is a number where a
number is expected, and `no` (Norwegian) remains a language code. Only an unquoted `null`, `~` or an
empty value means None.
"""

import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from seq2seq.config.compound import (
    BATCH_TOKENS,
    DECAY,
    DROPOUT,
    LAYERS,
    LOSSES,
    METRIC,
    NAMES,
    OPTIMIZER,
    SCHEDULE,
    SCORE,
    WINDOW,
    BatchTokens,
    DropoutConfig,
    Layers,
    LocalWindow,
    LossWeights,
    Named,
    compound_of,
)
from seq2seq.config.corpora import SPECIAL, split_list
from seq2seq.config.corpora import Corpus as Corpus
from seq2seq.config.corpora import DataConfig as DataConfig
from seq2seq.config.corpora import EmbeddingFiles as EmbeddingFiles
from seq2seq.config.corpora import ParallelFiles as ParallelFiles
from seq2seq.config.document import Tree, apply_override, read_document
from seq2seq.config.errors import ConfigError, ConfigIssue, describe_all, summary
from seq2seq.config.fields import (
    Bool,
    Count,
    CountOrZero,
    FilePath,
    Fraction,
    Int,
    LoadContext,
    NonEmptyStr,
    NotNegative,
    Positive,
    Section,
    Size,
    dump_auto,
    ignore,
    key,
    read_auto,
)
from seq2seq.config.scores import ADDITIVE_SCORES, fits_bahdanau, is_sized
from seq2seq.config.unknown_keys import KeyPath, section_class
from seq2seq.runtime import argument_types
from seq2seq.runtime.callers import in_callers_terms

VARIANTS = "variants"  # key of the files that `seq2seq compare` reads
_SIZE_SCHEMA = {"type": "integer", "minimum": 16, "maximum": 1_000_000}
Decoder = Literal["bahdanau", "luong", "gnmt", "none"]
_DECIDED_BY = {"attention_size": "score"}


def _read_names(value: object) -> object:
    """Read true and false, the values of earlier versions."""
    word = value.lower() if isinstance(value, str) else value
    if not isinstance(word, str | bool):
        return value
    words = {"true": "placeholders", "false": None, True: "placeholders", False: None}
    return words.get(word, value)


class VocabularyConfig(Section):
    """Segmentation of text into tokens."""

    type: Literal["unigram", "bpe", "word", "char"] = key(
        "unigram", "subwords, words or characters"
    )
    size: Annotated[
        Annotated[Int, Field(ge=16, le=1_000_000)] | None,
        BeforeValidator(read_auto),
        PlainSerializer(dump_auto),
        WithJsonSchema({"anyOf": [_SIZE_SCHEMA, {"const": "auto"}]}),
    ] = key(8000, "tokens, special ones included, or auto: as many as suit the training text")
    model: Annotated[tuple[FilePath, ...], BeforeValidator(split_list)] = key(
        (), "existing SentencePiece models in place of type and size: one, or source and target"
    )
    joint: Bool = key(True, "share one vocabulary between both languages")
    sampling: Annotated[NotNegative, Field(le=1)] = key(
        0.0, "subword regularisation: unigram exponent, or rate of BPE-dropout; 0: off"
    )

    symbols: Annotated[tuple[NonEmptyStr, ...], BeforeValidator(split_list)] = key(
        (), "strings such as <2fr> or <num> that are one token each, which nothing splits"
    )
    names: Annotated[Annotated[Named, NAMES] | None, BeforeValidator(_read_names)] = key(
        None,
        "placeholders: translate names as placeholders, spelled in the target's script; invented, "
        "or {invented: 0.3}: replace names that both sides share by invented ones in training, "
        "with this probability",
    )

    @field_validator("joint")
    @classmethod
    def _check_models(cls, joint: bool, info: ValidationInfo) -> bool:
        if len(info.data.get("model", ())) == 2 and joint:
            raise ValueError("must be false with two models; a joint vocabulary has one")
        return joint

    @field_validator("model")
    @classmethod
    def _count_models(cls, models: tuple[Path, ...]) -> tuple[Path, ...]:
        if len(models) > 2:
            raise ValueError("give one model, or two: source and target")
        return models

    @field_validator("symbols")
    @classmethod
    def _check_symbols(cls, symbols: tuple[str, ...]) -> tuple[str, ...]:
        for symbol in symbols:
            if SPECIAL.fullmatch(symbol):
                raise ValueError(f"{symbol} is a special token of every vocabulary; rename it")
            if not symbol.isprintable() or len(symbol) > 100 or re.search(r"[\s\u2581]", symbol):
                raise ValueError(f"{symbol!r} must be visible characters without a space")
            if unicodedata.normalize("NFC", symbol) != symbol:
                raise ValueError(f"{symbol} is not in Unicode's form NFC, in which text is read")
        if repeated := [each for n, each in enumerate(symbols) if each in symbols[:n]]:
            raise ValueError(f"{repeated[0]} occurs twice; remove one")
        return symbols

    @field_validator("names")
    @classmethod
    def _check_names(cls, names: Named | None, info: ValidationInfo) -> Named | None:
        if names == "placeholders" and info.data.get("type") == "word":
            raise ValueError("type word cannot split an ending off a name; use a subword type")
        return names

    @property
    def masks_names(self) -> bool:
        """Return whether names are placeholders in the text of the vocabulary."""
        return self.names == "placeholders"

    @property
    def invented_names(self) -> float:
        """Return the probability to replace a name that both sides share by an invented one."""
        return float(self.names.parameter) if self.names == "invented" else 0.0

    @field_validator("sampling")
    @classmethod
    def _check_sampling(cls, sampling: float, info: ValidationInfo) -> float:
        kind = info.data.get("type")
        if sampling > 0 and kind in ("word", "char"):
            raise ValueError(f"must be 0 with type {kind}, which has a single segmentation")
        return sampling


# The key `model.copy` hides a method that pydantic has deprecated.
warnings.filterwarnings("ignore", 'Field name "copy" in "ModelConfig"', UserWarning)


class ModelConfig(Section):
    """Architecture and sizes of the model; validation fills in the keys the decoder decides."""

    decoder: Decoder = key("bahdanau", "wiring of the decoder; none: last encoder state only")
    score: Annotated[Named, SCORE] | None = key(
        None,
        "attention score, with the number of heads {scaled_dot: 4}, or package.module:Class; null: "
        "additive, with luong general",
    )
    input_feeding: Bool | None = key(None, "feed h~ into the next step; luong only; null: true")
    window: Annotated[LocalWindow, WINDOW] | None = key(
        None,
        "local attention (Luong et al., 2015): local_m, local_p, or with the positions on each "
        "side of the centre, such as {local_p: 5}; null: global",
    )
    embedding_size: Size = key(256, "size of source and target embeddings")
    encoder: Literal["bidirectional", "forward", "reversed"] = key(
        "bidirectional",
        "reading direction: both, each of hidden_size / 2, left to right, or right to left",
    )
    hidden_size: Size = key(512, "size of decoder states and of encoder outputs")
    attention_size: Size | None = key(None, "additive, concat, scaled_dot; null: hidden_size // 2")
    layers: Annotated[Layers, LAYERS] = key(
        Layers(1, 1),
        "layers of encoder and decoder, or such as {encoder: 1, decoder: 4, residual: true}: "
        "layers but the lowest add their input to their output",
    )
    cell: Literal["lstm", "layer_norm_lstm", "gru"] = key(
        "lstm",
        "layer_norm_lstm: with layer normalisation (Ba et al., 2016); gru: the gated unit of "
        "Bahdanau et al. (2015)",
    )
    maxout: Bool = key(
        False, "maxout output layer, of the last state (Bahdanau et al., 2015); bahdanau only"
    )
    dropout: Annotated[DropoutConfig, DROPOUT] = key(
        DropoutConfig(0.0, 0.3, 0.3, 0.3),
        "dropout probability, or such as {word: 0.1, embedding: 0.3, hidden: 0.3, output: 0.3}; "
        "word: of complete tokens",
    )
    tie_embeddings: Bool = key(True, "target embedding = projection, = source embedding if joint")
    copy: Bool = key(  # type: ignore[assignment]
        False, "copy source tokens by attention (See et al., 2017); needs vocabulary.joint"
    )

    @field_validator("hidden_size")
    @classmethod
    def _check_halves(cls, hidden_size: int, info: ValidationInfo) -> int:
        if info.data.get("encoder") == "bidirectional" and hidden_size % 2:
            raise ValueError("must be even with a bidirectional encoder")
        return hidden_size

    @field_validator("score", "input_feeding", "window", "attention_size")
    @classmethod
    def _fit_to_decoder(cls, value: object, info: ValidationInfo) -> object:
        """Fill in an unset key; refuse one that does not apply, or ignore it if set in YAML."""
        key, earlier = str(info.field_name), info.data
        if "decoder" not in earlier or _DECIDED_BY.get(key, "decoder") not in earlier:
            return value
        if value is not None:
            reason = _why_unused(key, value, earlier)
            if reason is None:
                return value
            ignore(("model", key), value, reason, info)
        return _model_default(key, earlier)

    @field_validator("maxout")
    @classmethod
    def _check_maxout(cls, maxout: bool, info: ValidationInfo) -> bool:
        if not maxout or info.data.get("decoder", "bahdanau") == "bahdanau":
            return maxout
        ignore(("model", "maxout"), maxout, "the maxout layer belongs to decoder bahdanau", info)
        return False

    @field_validator("copy")
    @classmethod
    def _check_copying(cls, copy: bool, info: ValidationInfo) -> bool:
        if copy and info.data.get("decoder") == "none":
            raise ValueError("needs attention to copy by; set decoder to bahdanau or luong")
        return copy

    @field_validator("attention_size")
    @classmethod
    def _check_heads(cls, size: int | None, info: ValidationInfo) -> int | None:
        score = info.data.get("score")
        heads = score.parameter if isinstance(score, Named) else None
        if heads and size and size % heads:
            raise ValueError(f"must be a multiple of the {heads} heads of {{scaled_dot: {heads}}}")
        return size

    @property
    def residual(self) -> bool:
        """Return whether each layer but the lowest adds its input to its output."""
        return self.layers.residual

    @property
    def heads(self) -> int:
        """Return the number of attention heads."""
        return int(self.score.parameter or 1) if self.score is not None else 1


def _why_unused(key: str, value: object, earlier: Tree) -> str | None:
    """Return why the key does not apply to this decoder and score, or None if it does."""
    decoder, score = earlier["decoder"], earlier.get("score")
    if decoder == "none":
        return "decoder none has no attention"
    if key == "score" and decoder == "bahdanau" and not fits_bahdanau(str(value)):
        return f"decoder bahdanau takes {', '.join(ADDITIVE_SCORES)}"
    if key == "input_feeding" and decoder != "luong":
        return "input feeding belongs to decoder luong"
    if key == "attention_size" and not is_sized(score):
        return f"score {score} has no attention size"
    return None


def _model_default(key: str, earlier: Tree) -> object:
    """Return the default of a decoder-dependent key; None if the key does not apply."""
    decoder = earlier["decoder"]
    if key == "score":
        defaults = {"bahdanau": "additive", "luong": "general", "gnmt": "additive", "none": None}
        default = defaults[str(decoder)]
        return None if default is None else Named(default)
    if key == "input_feeding":
        return True if decoder == "luong" else None
    hidden_size = earlier.get("hidden_size")
    sized = key == "attention_size" and is_sized(earlier["score"])
    return max(1, hidden_size // 2) if sized and isinstance(hidden_size, int) else None


class TrainingConfig(Section):
    """Length of training, optimisation and regularisation; a step is one optimizer update."""

    max_epochs: Count | None = key(None, "maximum epochs (passes over the training text)")
    max_steps: Count | None = key(None, "maximum steps")
    max_minutes: Positive | None = key(None, "maximum wall time, validation included")
    optimizer: Annotated[Named, OPTIMIZER] = key(
        Named("adam", 0.0),
        "adam, sgd, or adamw with decoupled weight decay; with its coefficient: {adamw: 0.01}",
    )
    learning_rate: Positive = key(1e-3, "peak learning rate")
    warmup_steps: CountOrZero = key(0, "steps of linear warm-up of the learning rate")
    decay: Annotated[Named, DECAY] = key(
        Named("constant"),
        "learning rate after warm-up; linear, cosine: to 0 at max_epochs or max_steps, else "
        "max_minutes; plateau: halved after patience validations, or times {plateau: 0.7}",
    )
    clip_norm: Positive = key(1.0, "maximum norm of the gradient")
    label_smoothing: Fraction = key(0.1, "probability mass spread over the vocabulary")
    losses: Annotated[LossWeights, LOSSES] = key(
        LossWeights(0.0, 0.0, 0.0),
        "weights of further losses: consistency (R-Drop, doubles the cost), coverage (See et al., "
        "2017; needs score: coverage), guided_alignment (of attention against "
        "data.train.alignment)",
    )
    batch_tokens: Annotated[BatchTokens, BATCH_TOKENS] = key(
        BatchTokens(1500),
        "target tokens per batch, padding included; with the batches per step: {tokens: 1500, "
        "accumulate: 4}",
    )
    average: Fraction = key(0.0, "decay per step of a moving average of the weights; 0: off")
    validate_every: Count | None = key(None, "steps between validations; null: one per epoch")
    save_every: Positive | None = key(
        None, "minutes between saved states, besides those at validations; null: none"
    )
    keep: CountOrZero = key(0, "checkpoints of the latest validations to keep")
    metric: Annotated[Named, METRIC] = key(
        Named("bleu", 0.0),
        "validation metric of the best weights, patience and plateau: bleu, chrf or loss; with the "
        "smallest improvement that counts: {bleu: 0.2}",
    )
    patience: Count | None = key(
        None, "validations without improvement until training stops, or decays on a plateau"
    )
    precision: Literal["float32", "bf16", "fp16", "auto"] = key(
        "float32",
        "bf16, fp16: mixed, with float32 weights; auto: bf16 where it is faster, else float32",
    )
    log_every: Annotated[Count, Field(le=10_000)] = key(50, "steps between log lines")
    scheduled_sampling: Annotated[Named, SCHEDULE] | None = key(
        None,
        "decay of the probability of true decoder inputs, with its constant k in steps, such as "
        "{linear: 5000}, exponential or inverse_sigmoid; null: teacher forcing",
    )

    @field_validator("max_minutes")
    @classmethod
    def _check_end(cls, value: object, info: ValidationInfo) -> object:
        limits = [info.data.get(name, "invalid") for name in ("max_epochs", "max_steps")]
        if limits == [None, None] and value is None:
            raise ValueError("set at least one of max_epochs, max_steps and max_minutes")
        return value

    @field_validator("patience")
    @classmethod
    def _check_plateau(cls, patience: int | None, info: ValidationInfo) -> int | None:
        if patience is None and info.data.get("decay") == "plateau":
            raise ValueError("decay plateau needs patience, the validations without improvement")
        return patience

    @property
    def accumulate(self) -> int:
        """Return the number of batches per step."""
        return self.batch_tokens.accumulate

    @property
    def weight_decay(self) -> float:
        """Return the coefficient of weight decay."""
        return float(self.optimizer.parameter)

    @property
    def decay_factor(self) -> float:
        """Return the factor on the learning rate at each plateau; 1 without."""
        return float(self.decay.parameter) if self.decay == "plateau" else 1.0

    @property
    def min_improvement(self) -> float:
        """Return the smallest improvement of the metric that counts for patience."""
        return float(self.metric.parameter)


def _check_guided(earlier: Tree) -> None:
    """Raise ValueError if the keys before `training` do not allow guided alignment."""
    data: Any = earlier.get("data")
    vocabulary: Any = earlier.get("vocabulary")
    model: Any = earlier.get("model")
    if model is not None and model.decoder == "none":
        raise ValueError(
            "losses: guided_alignment needs attention; set decoder to bahdanau or luong"
        )
    if vocabulary is not None and vocabulary.names:
        raise ValueError(
            "losses: guided_alignment needs vocabulary.names: null, which keeps all words"
        )
    if data is not None and not any(corpus.alignment for corpus in data.train):
        raise ValueError(
            "losses: guided_alignment needs a file of alignments, data.train.alignment"
        )


class DecodingConfig(Section):
    """Search for translations: greedy or beam."""

    beam_size: Annotated[Count, Field(le=1_000_000)] = key(5, "hypotheses kept; 1: greedy search")
    length_penalty: Annotated[NotNegative, Field(le=10)] = key(1.0, "exponent of length in scores")
    coverage_penalty: NotNegative = key(0.0, "weight in beam search, Wu et al. (2016); 0: off")
    no_repeat_ngram: CountOrZero = key(0, "size of n-grams that must not repeat; 0: off")
    replace_unknown: Bool = key(False, "replace unknown words by source words, by attention")
    max_length: Count | None = key(None, "maximum tokens; null: estimated from the training text")
    min_length: CountOrZero = key(0, "minimum tokens, end-of-sentence not counted")
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


class Config(Section):
    """Complete settings of a run, with decoder-dependent defaults resolved."""

    name: NonEmptyStr = Field(description="name of the run in logs and plots")
    run_dir: FilePath = Field(description="run folder, relative to the working directory")
    seed: Annotated[Int, Field(ge=0, lt=2**63)] = key(1, "seed of all randomness")
    data: DataConfig
    vocabulary: VocabularyConfig = VocabularyConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig
    decoding: DecodingConfig = DecodingConfig()

    @field_validator("vocabulary")
    @classmethod
    def _check_embeddings(
        cls, vocabulary: VocabularyConfig, info: ValidationInfo
    ) -> VocabularyConfig:
        data = info.data.get("data")
        if data is None or data.embeddings is None:
            return vocabulary
        if vocabulary.type != "word" or vocabulary.joint or vocabulary.model:
            raise ValueError("data.embeddings needs type: word and joint: false, without model")
        return vocabulary

    @field_validator("model")
    @classmethod
    def _check_copying(cls, model: ModelConfig, info: ValidationInfo) -> ModelConfig:
        vocabulary = info.data.get("vocabulary")
        if model.copy and vocabulary is not None and not vocabulary.joint:
            raise ValueError(
                "copy needs vocabulary.joint: true, for source and target to share ids"
            )
        return model

    @field_validator("training")
    @classmethod
    def _check_consistency(cls, training: TrainingConfig, info: ValidationInfo) -> TrainingConfig:
        model = info.data.get("model")
        if model is not None and not any(model.dropout) and training.losses.consistency > 0:
            raise ValueError(
                "losses: consistency needs model.dropout above 0; both passes are equal"
            )
        if model is not None and model.score != "coverage" and training.losses.coverage > 0:
            raise ValueError("losses: coverage needs model.score: coverage")
        if training.losses.guided_alignment > 0:
            _check_guided(info.data)
        return training

    @field_validator("decoding")
    @classmethod
    def _fit_to_model(cls, decoding: DecodingConfig, info: ValidationInfo) -> DecodingConfig:
        """Turn off what needs attention if the model has none; refuse it on the command line."""
        model = info.data.get("model")
        if model is None or model.decoder != "none":
            return decoding
        refused, off = [], {"coverage_penalty": 0.0, "replace_unknown": False}
        for name in off:
            value, reason = getattr(decoding, name), f"decoder none has no attention for {name}"
            try:
                if value:
                    ignore(("decoding", name), value, reason, info)
            except ValueError:
                refused.append(name)
        if refused:
            raise ValueError(f"decoder none has no attention for {' and '.join(refused)}")
        return decoding.model_copy(update=off)


@in_callers_terms
def load_config(path: Path | str, overrides: Iterable[str] = ()) -> tuple[Config, list[str]]:
    """Read a YAML file, apply overrides such as `model.dropout=0.2`, and validate the result.

    The last override of a key wins; its value is taken literally, `null` means None.
    Return the config and notes on keys of the file that are ignored because they do not apply to
    the decoder. Raise ConfigError with every issue of the file and of the overrides at once, and
    TypeError for a path or overrides of another type.
    """
    path = argument_types.path(path, "path")
    overrides = argument_types.text_list(overrides, "overrides", "such as ['model.dropout=0.2']")
    document = read_document(path)
    if VARIANTS in document.tree:
        raise ConfigError(f"{path}: has the key {VARIANTS}; use it with `seq2seq compare`")
    issues = document.issues
    context = LoadContext()
    for override in overrides:
        try:
            context.overridden.add(apply_override(document.tree, override, _expanded))
        except ValueError as error:
            issues.append(ConfigIssue(None, f"{override} (command line): {error}", True))
    for name, info in Config.model_fields.items():
        if section_class(info.annotation) and document.tree.get(name) is None:
            document.tree[name] = {}
    try:
        config = Config.model_validate(document.tree, context=context)
    except ValidationError as error:
        found = describe_all(error, Config, document.lines, context.overridden)
        issues += [each for each in found if each.command_line or not document.incomplete]
    if issues:
        raise ConfigError(*summary(path, issues), issues=issues)
    return config, context.notes


def _expanded(path: KeyPath, value: object) -> object:
    """Return the map that the value of a key means, or the value itself."""
    section: type[BaseModel] | None = Config
    for depth, name in enumerate(path, start=1):
        if section is None or (info := section.model_fields.get(name)) is None:
            return value
        section = section_class(info.annotation)
        if depth == len(path) and (found := compound_of(info.annotation, info.metadata)):
            return found.as_map(value)
    return value


def dump_config(config: Config) -> str:
    """Return every key as YAML, in the order of the schema; `load_config` reads an equal config."""
    tree = config.model_dump()
    return str(yaml.dump(tree, None, _Dumper, sort_keys=False, allow_unicode=True, width=10_000))


_Files = TypeVar("_Files", ParallelFiles, Corpus, EmbeddingFiles)


def with_paths(config: Config, change: Callable[[Path], Path]) -> Config:
    """Return a config whose paths of run folder, data and models are what `change` returns."""

    def changed(files: _Files) -> _Files:
        return files.model_copy(update={key: change(path) for key, path in files.paths.items()})

    data, vocabulary = config.data, config.vocabulary
    files = {
        "train": tuple(map(changed, data.train)),
        "valid": changed(data.valid),
        "test": data.test and changed(data.test),
        "embeddings": data.embeddings and changed(data.embeddings),
    }
    own = {
        "data": data.model_copy(update=files),
        "run_dir": change(config.run_dir),
        "vocabulary": vocabulary.model_copy(update={"model": tuple(map(change, vocabulary.model))}),
    }
    return config.model_copy(update=own)


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a config file, with the description and default of every key."""
    return Config.model_json_schema()


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes text doubly if single quotes would turn a character into a line break."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style='"' if "\x85" in text else None
    ),
)

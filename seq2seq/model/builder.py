"""Build a model from the config: the only module of `model` that imports `config`."""

from torch import nn

from seq2seq.config.model import ModelConfig, ScoreConfig
from seq2seq.model import attention
from seq2seq.model.attention_layer import AttentionLayer, Coverage
from seq2seq.model.copying import Copying
from seq2seq.model.decoder import BahdanauDecoder, Decoder, DecoderSizes, LuongDecoder, PlainDecoder
from seq2seq.model.encoder import Encoder
from seq2seq.model.external_score import check_external_score, external_score
from seq2seq.model.gnmt_decoder import GNMTDecoder
from seq2seq.model.layers import DropoutRates, ScaledEmbedding
from seq2seq.model.local_attention import MonotonicWindow, PredictiveWindow, Window
from seq2seq.model.recurrent import GRULayer, LSTMLayer, NormedLSTMLayer, RecurrentLayer
from seq2seq.model.seq2seq import Seq2Seq


def build_model(
    config: ModelConfig, src_size: int, tgt_size: int, joint: bool, max_length: int = 100
) -> Seq2Seq:
    """Return a model for these vocabulary sizes, initialised from torch's global generator.

    `max_length` is the limit of training sources in tokens, end-of-sentence excluded. With
    `tie_embeddings` the target embedding is also the projection to the vocabulary, and the source
    embedding as well if the vocabulary is `joint`; the output layer then has the embedding's size.
    """
    src_embedding = ScaledEmbedding(src_size, config.embedding_size)
    shares_embeddings = joint and config.tie_embeddings
    tgt_embedding = (
        src_embedding if shares_embeddings else ScaledEmbedding(tgt_size, config.embedding_size)
    )
    dropout = DropoutRates(**dict(config.dropout))
    encoder = Encoder(
        src_embedding,
        config.hidden_size,
        config.layers.encoder,
        config.encoder == "bidirectional",
        dropout,
        config.encoder == "reversed",
        config.layers.residual,
        _layer_class(config),
    )
    output_size = config.embedding_size  # R if embeddings are tied
    if not config.tie_embeddings:  # half of H with maxout, as in its paper, A.2.3
        output_size = -(-config.hidden_size // 2) if config.maxout else config.hidden_size
    sizes = DecoderSizes(
        config.embedding_size,
        config.hidden_size,
        output_size,
        config.layers.decoder,
        dropout,
        config.layers.residual,
        _layer_class(config),
        encoder.direction_size,
    )
    decoder = _decoder(config, sizes, max_length)
    projection = nn.Linear(output_size, tgt_size)
    nn.init.zeros_(projection.bias)
    if config.tie_embeddings:
        projection.weight = tgt_embedding.weight
    copying = None
    if config.copy:
        assert isinstance(decoder, AttentionLayer), "no copying without attention"
        copying = Copying(output_size, decoder.score.context_size)
    return Seq2Seq(encoder, decoder, tgt_embedding, projection, dropout, copying)


def check_score(config: ModelConfig) -> None:
    """Raise ScoreError if the score is a class from outside that does not fit the model."""
    if config.score is not None and config.score.is_external:
        size = config.hidden_size
        check_external_score(config.score.name, size, size, _attention_size(config))


def _decoder(config: ModelConfig, sizes: DecoderSizes, max_length: int) -> Decoder:
    if config.decoder == "none":
        return PlainDecoder(sizes)
    assert config.score is not None, "set by the config for every decoder with attention"
    score = _score(config, config.score, max_length)
    window: Window | None = None
    if config.window is not None and config.window.kind == "local_m":
        window = MonotonicWindow(config.window.width)
    elif config.window is not None:
        window = PredictiveWindow(config.hidden_size, config.window.width)
    coverage = Coverage(_attention_size(config)) if config.score.name == "coverage" else None
    if config.decoder == "bahdanau":
        return BahdanauDecoder(sizes, score, window, coverage, config.maxout)
    if config.decoder == "gnmt":
        return GNMTDecoder(sizes, score, window, coverage)
    return LuongDecoder(sizes, score, window, coverage, bool(config.input_feeding))


def _layer_class(config: ModelConfig) -> type[RecurrentLayer]:
    if config.cell == "gru":
        return GRULayer
    return NormedLSTMLayer if config.cell == "layer_norm_lstm" else LSTMLayer


def _score(config: ModelConfig, score: ScoreConfig, max_length: int) -> attention.ScoreFunction:
    size = config.hidden_size
    if score.is_external:
        return external_score(score.name, size, size, _attention_size(config))
    match score.name:
        case "dot":
            return attention.DotScore(size, size)
        case "general":
            return attention.GeneralScore(size, size)
        case "location":
            return attention.LocationScore(size, size, max_length + 1)
        case "normed_additive":
            return attention.NormedAdditiveScore(size, size, _attention_size(config))
        case "scaled_dot":
            if score.heads == 1:
                return attention.ScaledDotScore(size, size, _attention_size(config))
            return attention.MultiHeadScore(size, size, _attention_size(config), score.heads)
    return attention.AdditiveScore(size, size, _attention_size(config))


def _attention_size(config: ModelConfig) -> int:
    assert config.attention_size is not None, "set by the config for every sized score"
    return config.attention_size

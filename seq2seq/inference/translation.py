"""What a line's translation is, and how those of a long line's parts become one."""

from dataclasses import dataclass, field, replace

_NO_SPACE_AFTER = tuple("\u3002\uff01\uff1f\u300d\u300f\uff09")  # Chinese ends and brackets


@dataclass(frozen=True)
class Translation:
    """One line's translation; a blank line's is blank."""

    text: str = ""
    # log-probability, nats, by length ** length_penalty; of parts a mean; nan: not asked for
    score: float = 0.0
    src_tokens: list[str] = field(default_factory=list)  # END included
    tgt_tokens: list[str] = field(default_factory=list)
    attention_weights: list[list[float]] | None = None  # rows: target pieces, columns: source
    nbest: list[tuple[str, float]] = field(default_factory=list)  # text, score; best first
    parts: int = 1  # in how many parts an over-long line was translated
    left_out: bool = False  # whether the rest of an endless stretch without a space was


def joined(parts: list[Translation], n_best: int) -> Translation:
    """One Translation of a line's parts; each part's attention weights are a block of their own."""
    if not parts:
        return Translation(nbest=[("", 0.0)] * n_best)
    if len(parts) == 1:
        return _padded(parts[0], n_best)
    lengths = [len(part.tgt_tokens) for part in parts]
    ranks = [_padded(part, n_best).nbest for part in parts]
    nbest = [
        (
            _run_on([text for text, _ in rank]),
            sum(n * score for n, (_, score) in zip(lengths, rank, strict=True)) / sum(lengths),
        )
        for rank in zip(*ranks, strict=True)
    ]
    return Translation(
        *nbest[0],
        [piece for part in parts for piece in part.src_tokens],
        [piece for part in parts for piece in part.tgt_tokens],
        _joined_weights(parts),
        nbest,
        len(parts),
    )


def _run_on(texts: list[str]) -> str:
    """The texts as one line: a space between two, but none after a Chinese sentence's end."""
    line = ""
    for text in filter(None, texts):
        line += text if not line or line.endswith(_NO_SPACE_AFTER) else f" {text}"
    return line


def _joined_weights(parts: list[Translation]) -> list[list[float]] | None:
    """The parts' attention weights as blocks of one matrix; None where a part has none."""
    columns = sum(len(part.src_tokens) for part in parts)
    rows: list[list[float]] = []
    before = 0
    for part in parts:
        if part.attention_weights is None:
            return None
        after = columns - before - len(part.src_tokens)
        rows += [[0.0] * before + row + [0.0] * after for row in part.attention_weights]
        before += len(part.src_tokens)
    return rows


def _padded(part: Translation, n_best: int) -> Translation:
    """With exactly n_best entries, the last one repeated where search found fewer."""
    missing = n_best - len(part.nbest)
    return part if missing <= 0 else replace(part, nbest=part.nbest + part.nbest[-1:] * missing)

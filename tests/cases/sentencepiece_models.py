"""SentencePiece models of the toy language, trained without this package."""

import io
from pathlib import Path
from typing import Any

import sentencepiece

from cases.toy_text import toy_pairs


def trained(path: Path, texts: list[str] | None = None, **settings: Any) -> Any:
    """Train a model without this package, save it, and return SentencePiece's processor for it."""
    written, (src, tgt) = io.BytesIO(), toy_pairs(300, seed=1)
    settings = {"vocab_size": 120, "hard_vocab_limit": False, "minloglevel": 2, **settings}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts or [*src, *tgt]), model_writer=written, **settings
    )
    path.write_bytes(written.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())

"""A process that learns a vocabulary from cached text, or cuts it into pieces, for another one.

It reads a job as a line of JSON from stdin. To learn, it answers with a line. To cut, it reads one
range of pairs a line and answers each with the arrays of a Chunk. It ends when stdin does, and so
does not outlive the process that asks.
"""

import base64
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.cache.arrays import map_text
from seq2seq.data.corpus import ParallelText
from seq2seq.data.vocabulary import Vocabularies, models_of, train_vocabularies, vocabularies_of
from seq2seq.runtime.errors import UserError

Numbers = NDArray[np.uint32]


class Chunk(NamedTuple):
    """The pairs of a range of which neither side is too long."""

    rows: Numbers  # within the range
    src_lengths: Numbers
    src_ids: Numbers
    tgt_lengths: Numbers
    tgt_ids: Numbers


def encode_range(
    text: ParallelText, vocabularies: Vocabularies, max_length: int, start: int, end: int
) -> Chunk:
    """Cut a range of pairs into pieces."""
    src = vocabularies.src.encode(text.src[start:end])
    tgt = vocabularies.tgt.encode(text.tgt[start:end])
    rows = [i for i in range(end - start) if max(len(src[i]), len(tgt[i])) <= max_length]
    sides = [[side[i] for i in rows] for side in (src, tgt)]
    arrays = [
        np.array(values, np.uint32)
        for side in sides
        for values in ([len(ids) for ids in side], [i for ids in side for i in ids])
    ]
    return Chunk(np.array(rows, np.uint32), *arrays)


def send(chunk: Chunk, file: IO[bytes]) -> None:
    """Write a chunk: the sizes of its arrays, then the arrays."""
    file.write(np.array([len(part) for part in chunk], np.uint64).tobytes())
    for part in chunk:
        file.write(part.tobytes())
    file.flush()


def receive(file: IO[bytes]) -> Chunk:
    """Read what `send` wrote; raises EOFError where it does not come."""
    sizes = np.frombuffer(_exactly(file, 8 * len(Chunk._fields)), np.uint64).tolist()
    return Chunk(*(np.frombuffer(_exactly(file, 4 * size), np.uint32) for size in sizes))


def job_of(text: Path, **parts: Any) -> bytes:
    """A job's line."""
    return json.dumps({"text": str(text), **parts}).encode() + b"\n"


def as_text(models: Mapping[str, bytes]) -> dict[str, str]:
    """Models, for a line of JSON."""
    return {name: base64.b64encode(model).decode() for name, model in models.items()}


def from_text(models: Mapping[str, str]) -> dict[str, bytes]:
    """What `as_text` was given."""
    return {name: base64.b64decode(model) for name, model in models.items()}


def main() -> None:
    """Do one job."""
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    line = asked.readline()
    if not line.endswith(b"\n"):
        return  # who asked is gone
    job = json.loads(line)
    text = map_text(Path(job["text"]), job["text"])
    if "learn" in job:
        answers.write(json.dumps(_learnt(job["learn"], text)).encode() + b"\n")
        return
    vocabularies = vocabularies_of(from_text(job["models"]))
    for line in asked:
        start, end = map(int, line.split())
        send(encode_range(text, vocabularies, job["max_length"], start, end), answers)


def _learnt(config: Mapping[str, Any], text: ParallelText) -> dict[str, Any]:
    try:
        vocabularies = train_vocabularies(VocabularyConfig(**config), text.src, text.tgt)
    except UserError as error:
        return {"mistake": str(error)}
    return {"models": as_text(models_of(vocabularies))}


def _exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(1)  # who asked is gone

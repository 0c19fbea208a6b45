"""What a run that goes on must find as it left it: its texts and its vocabulary."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from seq2seq.config.schema import Config
from seq2seq.data.training_data import TrainingData
from seq2seq.data.vocabulary import Vocabularies, checksums_of, load_vocabularies
from seq2seq.runs.checkpoint import VOCABULARY, update_vocabularies
from seq2seq.runs.provenance import recorded_vocabularies
from seq2seq.runs.tensor_file import read_header
from seq2seq.runs.training_state import resumable
from seq2seq.runtime.errors import DamagedFile, UserError


def check_texts(folder: Path, checksums: dict[str, str]) -> None:
    """Refuse to go on where training or validation text is not what the run began with."""
    last = resumable(folder)
    recorded = read_header(last)[0].get("data") if last is not None else None
    for split, checksum in checksums.items():
        if isinstance(recorded, dict) and recorded.get(split, checksum) != checksum:
            raise UserError(
                f"data.{split}: has changed since {folder} was trained on it; "
                "put the text back, or begin anew (--overwrite, or another run_dir)"
            )


def resumed_vocabularies(
    config: Config, data: TrainingData, init_from: Path | None
) -> tuple[Vocabularies, list[str]]:
    """The run's vocabulary; where its files are damaged, the same from where the run once had it.

    That is the run it began with, or the text it learnt it from; checksums tell that it is the
    same. Returns a note where that was done.
    """
    folder, sampling = config.run_dir / VOCABULARY, config.vocabulary.sampling
    last = resumable(config.run_dir)
    assert last is not None, "only a run with a saved state is resumed"
    header, _ = read_header(last)
    try:
        return recorded_vocabularies(last, header, folder, sampling), []
    except DamagedFile:
        raise  # the header itself
    except UserError as error:
        for vocabularies, how in _beginnings(config, data, init_from):
            if checksums_of(vocabularies) == header["vocabulary"]:
                update_vocabularies(config.run_dir, vocabularies)
                return vocabularies, [f"{folder} was damaged; {how}, it is the same to the bit"]
        raise UserError(
            f"{error}, but the training text does not give it either; put back the text or the "
            "vocabulary that the run began with, or tell by --init-from which run it began with"
        ) from None


def _beginnings(
    config: Config, data: TrainingData, init_from: Path | None
) -> Iterator[tuple[Vocabularies, str]]:
    """What the run may have had its vocabulary from, as far as that can be read."""
    if init_from is not None:
        with suppress(UserError):
            yield (
                load_vocabularies(init_from / VOCABULARY, config.vocabulary.sampling),
                "taken anew",
            )
    with suppress(UserError):
        yield data.vocabularies(config.vocabulary), "learnt anew"

"""The lexical table in a run folder, from which search makes shortlists."""

from pathlib import Path

import torch

from seq2seq.data.lexical_table import LexicalTable
from seq2seq.data.vocabulary.files import checksums_of
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.runs import tensor_file
from seq2seq.runs.layout import SHORTLIST, writing
from seq2seq.runtime.errors import DamagedFile, UserError

_ENDS, _TOKENS, _PROBS = "ends", "tokens", "probs"
_TYPES = {_ENDS: torch.int64, _TOKENS: torch.int32, _PROBS: torch.float32}


def save_shortlist(
    folder: Path, table: LexicalTable, vocabularies: Vocabularies, text: str, pairs: int
) -> Path:
    """Write the table of a training text, given its checksum and number of pairs."""
    path = folder / SHORTLIST
    header = {"vocabulary": checksums_of(vocabularies), "text": text, "pairs": pairs}
    tensors = {name: torch.from_numpy(each) for name, each in table._asdict().items()}
    with writing(path):
        tensor_file.save_tensors(path, tensors, header)
    return path


def read_shortlist(folder: Path, vocabularies: Vocabularies) -> LexicalTable:
    """Read the table of a run folder; raises UserError if there is none for its vocabulary."""
    path, remedy = folder / SHORTLIST, f"`seq2seq shortlist -m {folder}` writes it"
    if not path.exists():
        raise UserError(f"{folder} has no {SHORTLIST}; {remedy}", argument="shortlist", value=True)
    try:
        header, tensors = tensor_file.read_file(path)
        if not _is_table(tensors, vocabularies):
            raise DamagedFile(f"{path}: not a shortlist of these vocabularies")
    except DamagedFile as error:
        raise DamagedFile(f"{error}; {remedy} again") from None
    if header.get("vocabulary") != checksums_of(vocabularies):
        raise UserError(f"{path}: made for another vocabulary; {remedy} again")
    return LexicalTable(*(tensors[name].numpy() for name in LexicalTable._fields))


def _is_table(tensors: dict[str, torch.Tensor], vocabularies: Vocabularies) -> bool:
    """Return whether tensors have the types, sizes and values of a table."""
    if {name: each.dtype for name, each in tensors.items()} != _TYPES:
        return False
    ends, tokens, probs = (tensors[name] for name in _TYPES)
    return (
        ends.shape == (len(vocabularies.src),)
        and tokens.shape == probs.shape == (int(ends[-1]),)
        and bool((ends.diff(prepend=ends.new_zeros(1)) >= 0).all())
        and bool(((tokens >= 0) & (tokens < len(vocabularies.tgt))).all())
        and bool(((probs >= 0) & (probs <= 1)).all())
    )

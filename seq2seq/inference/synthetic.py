"""Corpora of machine translations, for distillation and back-translation, made so that they resume.

The journal of a translation is one file. Its first line is a JSON object with the settings of the
translation. Each further line is a batch: a JSON list with, for each source line, the list of its
translations. A batch is appended and synced at once. If the process is killed meanwhile, the
incomplete last line is dropped when the file is opened again.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from seq2seq.config.schema import DecodingConfig, ParallelFiles
from seq2seq.data.corpus import iter_pairs
from seq2seq.data.lines import checksum_of_file, iter_lines
from seq2seq.data.tables import pair_writer
from seq2seq.inference.loading import ModelOptions
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.runs.layout import BEST
from seq2seq.runtime.errors import DamagedFile, UserError, argument
from seq2seq.runtime.file_types import table_format
from seq2seq.runtime.files import sync, write_errors
from seq2seq.runtime.locks import file_lock

Settings = Mapping[str, Any]  # values that JSON holds


class Journal:
    """Open journal: the number of lines that are translated, and their translations."""

    def __init__(self, path: Path, file: IO[bytes], done: int) -> None:
        """Take a file whose position is the end of its last complete batch."""
        self.path, self.done = path, done
        self._file = file

    @classmethod
    @contextmanager
    def open(cls, path: Path, settings: Settings, overwrite: bool = False) -> Iterator[Self]:
        """Open a journal, or begin one if there is none or it is to be overwritten.

        A journal with the same settings is resumed, also with `overwrite`. Raises UserError if it
        has other settings or another process writes it, DamagedFile if a batch before the last
        cannot be read, and RunError if writing fails.
        """
        with write_errors(path), file_lock(path), path.open("r+b") as file:
            recorded, expected = file.readline(), _as_line({**settings})
            if recorded != expected and not expected.startswith(recorded):
                _loaded(recorded, f"{path}:1", dict)
            journal = cls(path, file, _count(file, path, len(recorded)))
            if recorded != expected:
                if journal.done and not overwrite:
                    raise UserError(
                        f"{path}: was begun with other settings. Repeat that command, or pass "
                        f"{argument('overwrite', True)} to begin again"
                    )
                journal.done = 0
                file.seek(0)
                journal._append({**settings})
            yield journal

    def append(self, batch: Sequence[Sequence[str]]) -> None:
        """Record the translations of the next lines; they are on disk when this returns."""
        self._append([list(texts) for texts in batch])
        self.done += len(batch)

    def translations(self) -> Iterator[list[str]]:
        """Yield the translations of each line, in order."""
        with self.path.open("rb") as file:
            file.readline()  # settings
            for line in file:
                yield from json.loads(line)

    def _append(self, value: object) -> None:
        with write_errors(self.path):
            self._file.truncate()
            self._file.write(_as_line(value))
            self._file.flush()
            sync(self._file)


def _as_line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def _count(file: IO[bytes], path: Path, start: int) -> int:
    """Return the number of lines in all batches; leave the file after the last complete one."""
    done, end = 0, start
    for number, line in enumerate(iter(file.readline, b""), start=2):
        if not line.endswith(b"\n"):
            break
        done += len(_loaded(line, f"{path}:{number}", list))
        end += len(line)
    file.seek(end)
    return done


def _loaded(line: bytes, place: str, kind: type) -> Any:
    with suppress(ValueError):  # also bytes that are not UTF-8
        value = json.loads(line)
        if isinstance(value, kind):
            return value
    raise DamagedFile(
        f"{place}: is damaged, or not a journal of translations. Remove the file to begin again"
    )


class SyntheticCorpus(NamedTuple):
    """A corpus to write: the text to translate, the files of the pairs, and their languages."""

    text: Path | ParallelFiles  # a file of lines, or a parallel text whose sources are translated
    outputs: Sequence[Path]
    languages: tuple[str, str]  # source and target
    translates_targets: bool  # back-translation: the translation is the source of a pair
    search: SearchSettings
    beam_size: int | None = None

    @property
    def inputs(self) -> list[Path]:
        """Return the files that are read."""
        return [self.text] if isinstance(self.text, Path) else [*self.text.paths.values()]

    @property
    def columns(self) -> tuple[str, str]:
        """Return the names of the columns of a table: the codes of the languages."""
        src, tgt = self.languages
        return ("src", "tgt") if src == tgt else (src, tgt)

    @property
    def is_tsv(self) -> bool:
        """Return whether a pair is a line of TSV, which cannot hold a tab within a sentence."""
        return len(self.outputs) == 1 and table_format(self.outputs[0]) == "tsv"

    @property
    def journal(self) -> Path:
        """Return the file of the translations so far."""
        first = self.outputs[0]
        return first.with_name(f"{first.name}.journal")

    def lines(self) -> Iterator[str]:
        """Yield the lines to translate; raises UserError for text that cannot be read."""
        if isinstance(self.text, Path):
            return iter_lines(self.text)
        return (src for src, _ in iter_pairs(self.text))

    def survey(self) -> tuple[int, str]:
        """Return the number of lines and their SHA-256; raise UserError for text that is unfit."""
        count, content = 0, hashlib.sha256()
        for count, line in enumerate(self.lines(), start=1):
            content.update(f"{line}\n".encode())
            if self.is_tsv and "\t" in line:
                raise UserError(
                    f"{self.inputs[0]}:{count}: contains a tab, which TSV cannot hold. Write two "
                    "files, .csv or .jsonl"
                )
        return count, content.hexdigest()

    def settings(
        self, runs: Sequence[str], decoding: DecodingConfig, options: ModelOptions
    ) -> dict[str, Any]:
        """Return all that decides the translations, but for the text, as JSON holds it."""
        sampling = self.search.sampling
        of_config = decoding.model_dump(mode="json")
        return {
            "models": [checksum_of_file(Path(run) / BEST) for run in runs],
            "beam": self.beam_size,
            "sampling": None if sampling is None else sampling._asdict(),
            "decoding": list(options.overrides),
            "int8": options.int8,
            "float16": options.float16,
            **{f"config.decoding.{key}": value for key, value in of_config.items()},
        }

    def translate(
        self,
        translator: Translator,
        journal: Journal,
        batch_lines: int,
        on_translated: Callable[[int], object] | None = None,
    ) -> Iterator[list[Translation]]:
        """Translate the lines that the journal lacks; yield each batch before it is recorded."""
        sampling = self.search.sampling
        n_best = 1 if sampling is None else sampling.samples
        lines = islice(self.lines(), journal.done, None)
        while batch := list(islice(lines, batch_lines)):
            translations = translator.translate(
                batch,
                self.beam_size,
                n_best,
                text_only=True,
                on_translated=on_translated,
                settings=self.search,
            )
            yield translations
            journal.append([[entry.text for entry in line.n_best] for line in translations])

    def write(self, journal: Journal, checksum: str) -> int:
        """Write the pairs and return their number; raise UserError if the text has changed."""
        pairs, content = 0, hashlib.sha256()
        with pair_writer(self.outputs, self.columns) as write:
            for line, texts in zip(self.lines(), journal.translations(), strict=False):
                content.update(f"{line}\n".encode())
                for text in texts:
                    translation = text.replace("\t", " ") if self.is_tsv else text
                    pair = (translation, line)
                    write(*(pair if self.translates_targets else pair[::-1]))
                    pairs += 1
            if content.hexdigest() != checksum:
                raise UserError(f"{self.inputs[0]}: changed while being read. Try again")
        return pairs

    def config_entry(self) -> dict[str, object]:
        """Return the entry of `data.train` that reads the corpus."""
        names = ("src", "tgt") if len(self.outputs) == 2 else ("file",)
        entry: dict[str, object] = dict(zip(names, map(str, self.outputs), strict=True))
        if len(names) == 1 and not self.is_tsv:
            entry["columns"] = list(self.columns)
        if self.translates_targets:
            entry["tag"] = "<bt>"
        return entry

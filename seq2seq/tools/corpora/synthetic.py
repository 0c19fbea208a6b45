"""Corpora of machine translations, for distillation and back-translation, made so that they resume.

The journal of a translation is one file: a line with a checksum of its settings, then, for each
source line, a JSON list of its translations. The last line may be incomplete, and is dropped.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple, Self

from seq2seq.config.schema import DecodingConfig, ParallelFiles
from seq2seq.data import corpus, tables
from seq2seq.inference.loaded_model import ModelOptions
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.runs.layout import BEST
from seq2seq.runtime import errors, file_types, locks
from seq2seq.runtime.files import sync, write_errors
from seq2seq.text.text_files import checksum_of_file, iter_lines

_MARK = b"seq2seq journal "  # begins the first line of a journal


class Journal:
    """Open journal: the number of lines that are translated, and their translations."""

    def __init__(self, path: Path, file: IO[bytes], line_count: int) -> None:
        self.path = path
        self.line_count = line_count
        self._file = file

    @classmethod
    @contextmanager
    def open(cls, path: Path, settings: str, overwrite: bool = False) -> Iterator[Self]:
        """Open a journal, or begin one if there is none or it is to be overwritten.

        One with the same settings is resumed in any case. Raises UserError if it has others, is
        another file or is written by another process, and RunError if writing fails.
        """
        with write_errors(path), path.open("a+b") as file:
            locks.lock_file(file, path)
            file.seek(0)
            first_line = file.readline()
            expected = _MARK + f"{settings}\n".encode()
            if not (first_line.startswith(_MARK) or _MARK.startswith(first_line)):
                text = "is not a journal of translations. Remove the file to begin again"
                raise errors.UserError(f"{path}: {text}")
            end = len(first_line)
            line_count = 0
            for line in file:
                if line.endswith(b"\n"):
                    end = end + len(line)
                    line_count = line_count + 1
            journal = cls(path, file, line_count)
            file.seek(end)
            if first_line != expected:
                if line_count and not overwrite:
                    remedy = f"Repeat that command, or pass {errors.argument('overwrite', True)}"
                    text = f"was begun with other settings. {remedy} to begin again"
                    raise errors.UserError(f"{path}: {text}")
                journal.line_count = file.seek(0)
                journal._append(expected)
            yield journal

    def append(self, batch: Sequence[Sequence[str]]) -> None:
        """Record the translations of the next lines; they are on disk when this returns."""
        lines = (f"{json.dumps(texts, ensure_ascii=False)}\n" for texts in batch)
        self._append("".join(lines).encode())
        self.line_count += len(batch)

    def translations(self) -> Iterator[list[str]]:
        """Yield the translations of each line, in order; raises UserError for a damaged line."""
        with self.path.open("rb") as file:
            file.readline()  # settings
            for number, line in enumerate(file, start=2):
                try:
                    yield json.loads(line)
                except ValueError:
                    text = "is damaged. Remove the file to begin again"
                    raise errors.UserError(f"{self.path}:{number}: {text}") from None

    def _append(self, content: bytes) -> None:
        with write_errors(self.path):
            self._file.truncate()
            self._file.write(content)
            self._file.flush()
            sync(self._file)


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
        return self.languages if len({*self.languages}) == 2 else ("src", "tgt")

    @property
    def journal(self) -> Path:
        """Return the file of the translations so far."""
        return self.outputs[0].with_name(f"{self.outputs[0].name}.journal")

    def lines(self) -> Iterator[str]:
        """Yield the lines to translate; raises UserError for text that cannot be read."""
        if isinstance(self.text, Path):
            return iter_lines(self.text)
        return (src for src, _ in corpus.iter_pairs(self.text))

    def checksums(self, runs: Sequence[str]) -> dict[Path, str]:
        """Return the checksums of the text and of the models of runs, by their files."""
        files = [*self.inputs, *(Path(run) / BEST for run in runs)]
        return {path: checksum_of_file(path) for path in files}

    def settings(self, sums: Iterable[str], decoding: DecodingConfig, options: ModelOptions) -> str:
        """Return a checksum of all that decides the translations."""
        how = decoding, [*options.overrides], options.int8, options.float16
        facts = [*sums, self.beam_size, self.search.sampling, *how]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def translate(
        self,
        translator: Translator,
        journal: Journal,
        batch_lines: int,
        on_translated: Callable[[int], object] | None = None,
    ) -> Iterator[list[Translation]]:
        """Translate the lines that the journal lacks; yield each batch before it is recorded."""
        search = self.search
        size = self.beam_size
        n_best = 1 if search.sampling is None else search.sampling.samples
        lines = islice(self.lines(), journal.line_count, None)
        while batch := list(islice(lines, batch_lines)):
            translations = translator.translate(
                batch, size, n_best, text_only=True, on_translated=on_translated, settings=search
            )
            yield translations
            journal.append([[entry.text for entry in line.n_best] for line in translations])

    def write(self, journal: Journal) -> int:
        """Write the pairs and return their number."""
        pairs = 0
        with tables.pair_writer(self.outputs, self.columns) as write:
            for line, texts in zip(self.lines(), journal.translations(), strict=False):
                for text in texts:
                    write(*((text, line) if self.translates_targets else (line, text)))
                pairs += len(texts)
        return pairs

    def config_entry(self) -> dict[str, object]:
        """Return the entry of `data.train` that reads the corpus."""
        names = ("src", "tgt") if len(self.outputs) == 2 else ("file",)
        entry: dict[str, object] = dict(zip(names, map(str, self.outputs), strict=True))
        if len(names) == 1 and file_types.table_format(self.outputs[0]) != "tsv":
            entry["columns"] = list(self.columns)
        if self.translates_targets:
            entry["tag"] = "<bt>"
        return entry

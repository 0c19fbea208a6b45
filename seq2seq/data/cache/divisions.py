"""Divisions of cached pairs into batches, kept in their entry: to count batches takes seconds.

The record is used only by the code that wrote it, and for the entry that it was written for.
"""

import hashlib
import inspect
import json
import os
from contextlib import suppress

import numpy as np

from seq2seq.data import batching, length_windows
from seq2seq.data.cache.entries import Entry
from seq2seq.data.cache.records import UNREADABLE
from seq2seq.data.length_windows import BatchDivision

RECORD = "divisions"
_MAX_BYTES = 1 << 24
Key = tuple[int, bool]


class StoredDivisions(dict[Key, BatchDivision]):
    """Divisions by batch_tokens and order, stored as soon as they are known."""

    def __init__(self, entry: Entry) -> None:
        """Read those of earlier starts; if that fails, start without any."""
        super().__init__()
        self._folder = entry.folder
        code = inspect.getsource(length_windows) + inspect.getsource(batching)
        self._origin = [entry.manifest, np.__version__, hashlib.sha256(code.encode()).hexdigest()]
        with suppress(*UNREADABLE):
            self.update(self._read())

    def __setitem__(self, key: Key, division: BatchDivision) -> None:
        super().__setitem__(key, division)
        rows = [[*key, *value] for key, value in self.items()]
        with suppress(OSError):  # the next start counts again
            self._folder.write(RECORD, json.dumps([*self._origin, rows]).encode(), 0o600)

    def _read(self) -> dict[Key, BatchDivision]:
        with os.fdopen(self._folder.open(RECORD), "rb") as file:
            *origin, rows = json.loads(file.read(_MAX_BYTES))
        if origin != self._origin:
            return {}
        return {
            (int(tokens), bool(is_sorted)): BatchDivision(
                float(spread), [int(each) for each in counts]
            )
            for tokens, is_sorted, spread, counts in rows
        }

"""Batches of training steps: made in this process, or ahead of time in workers.

Workers are forked, so that nothing of the corpus is copied, and write batches to memory that all
processes share: a worker that is killed cannot cut short a message. They make the same batches.

Which ones a resumed run still takes of an epoch is decided by `train_epoch` in `loop.py`.
"""

import gc
import mmap
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack

import numpy as np
import torch
from torch import Tensor

from seq2seq.data import batching, guided_alignment, length_windows, padding
from seq2seq.runtime.device import derive_seed
from seq2seq.runtime.workers import available_cores, worker_pool
from seq2seq.training.session import TrainingSession

MAX_WORKERS = 4  # without a number in the config
_QUEUED = 2  # steps ahead, for each worker
_STEP_BYTES = 128  # shared memory for each target token of a step; larger steps are made here
_LEAST_BYTES = 1 << 20
_ALIGNMENT_BYTES = 4 * 64  # more for guided alignment, to 64 words
_NOTE = (
    "a process that made batches was killed or ran out of memory; from now on they are "
    "made in the main process, more slowly"
)
_Layout = list[tuple[str, tuple[int, ...], int] | None]  # dtype, shape and offset of each field


class StepBatches:
    """The batches of successive steps, made ahead by workers if there are any."""

    def __init__(self, session: TrainingSession) -> None:
        self._session = session
        self._stack = ExitStack()
        self._pool: ProcessPoolExecutor | None = None
        self._slots: list[mmap.mmap] = []
        self.note: str | None = None  # why this process makes the batches after all

    def __enter__(self) -> "StepBatches":
        gc.collect()
        gc.freeze()  # a collection would visit all that was loaded, and copy it in workers
        if workers := _workers(self._session):
            _ = self._session.inventor  # before workers are forked
            size = _slot_bytes(self._session)
            self._slots = [mmap.mmap(-1, size) for _ in range(_QUEUED * workers)]
            pool = worker_pool(workers, _shared.append, ((self._session, self._slots),))
            self._pool = self._stack.enter_context(pool)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        gc.unfreeze()

    def of_steps(self, order: batching.EpochOrder, starts: range) -> Iterator[list[padding.Batch]]:
        """Yield this rank's batches of each step, which has those of `order` from `start` on.

        They are on the CPU, and valid until the next ones are asked for.
        """
        session = self._session
        ahead = deque[Future[list[_Layout] | None]]()
        accumulate = session.config.training.accumulate
        epoch = session.progress.epoch
        numbers = iter(range(len(starts)))
        try:
            for number, start in enumerate(starts):
                layouts = None
                try:
                    while self._pool is not None and len(ahead) < len(self._slots):
                        if (next_number := next(numbers, None)) is None:
                            break
                        rows = order[starts[next_number] : starts[next_number] + accumulate]
                        place = next_number % len(self._slots)
                        ahead.append(self._pool.submit(_make, place, rows, epoch))
                    layouts = ahead.popleft().result() if self._pool is not None else None
                except (BrokenProcessPool, MemoryError):  # a worker is lost
                    self._stack.close()  # end the others: the pool would wait for them, busily
                    self._pool = None
                    self.note = _NOTE
                if layouts is None:
                    yield own_batches(session, order[start : start + accumulate], epoch)
                else:
                    slot = self._slots[number % len(self._slots)]
                    yield [_read(layout, slot) for layout in layouts]
        finally:
            for future in ahead:
                future.cancel()
            wait(ahead)  # the slots are used again


def _read(layout: _Layout, slot: mmap.mmap) -> padding.Batch:
    """Return the batch of a layout, whose tensors are the shared memory."""
    tensors: list[Tensor | None] = []
    for field in layout:
        if field is None:
            tensors.append(None)
            continue
        dtype, shape, offset = field
        values = np.frombuffer(slot, dtype, int(np.prod(shape)), offset)
        tensors.append(torch.from_numpy(values.reshape(shape)))
    return padding.Batch(*tensors)  # type: ignore[arg-type]


def own_batches(
    session: TrainingSession, batches: Sequence[length_windows.Rows], epoch: int | None = None
) -> list[padding.Batch]:
    """Return this rank's share of a step's batches, on the CPU; shares without a pair are left out.

    They are those of the current epoch, unless another is given, and rounded if steps are captured.
    """
    seed = derive_seed(session.config.seed, session.progress.epoch if epoch is None else epoch)
    shares = map(session.run.group.share, batches)
    micro_batches = [batch_of(session, rows, seed) for rows in shares if len(rows)]
    return [batch.rounded() for batch in micro_batches] if session.is_static else micro_batches


def batch_of(session: TrainingSession, rows: length_windows.Rows, seed: int) -> padding.Batch:
    """Return the pairs `rows`, sampled and with invented names if configured."""
    config = session.config
    data = session.data
    targets: tuple[Tensor, ...] = ()
    if config.vocabulary.sampling > 0 or config.vocabulary.invented_names > 0:
        src, tgt = batching.sampled_pairs(
            data.train,
            rows,
            data.vocabularies,
            config.data.max_length,
            seed,
            alike=config.model.copy,
            inventor=session.inventor,
        )
    else:
        src = [data.train.src[i] for i in rows]
        tgt = [data.train.tgt[i] for i in rows]
    if config.training.losses.guided_alignment > 0 and data.train.links is not None:
        links = [data.train.links[i] for i in rows]
        texts = [data.train.src_texts[i] for i in rows], [data.train.tgt_texts[i] for i in rows]
        targets = guided_alignment.alignment_targets(src, tgt, links, data.vocabularies, texts)
    return padding.make_batch(src, tgt, *targets)


def _workers(session: TrainingSession) -> int:
    """Return the number of workers: that of the config, or as many as keep a GPU busy."""
    if (count := session.config.training.batch_workers) is not None:
        return count
    if session.device.type != "cuda":
        return 0
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # on this machine, set by torchrun
    cores = available_cores() // ranks
    return max(0, min(MAX_WORKERS, cores - 1))


def _slot_bytes(session: TrainingSession) -> int:
    settings = session.config.training
    token = _STEP_BYTES + (_ALIGNMENT_BYTES if settings.losses.guided_alignment else 0)
    return _LEAST_BYTES + token * settings.batch_tokens * settings.accumulate


# ------------------------------------------------------------------------------------- the workers

_shared: list[tuple[TrainingSession, list[mmap.mmap]]] = []  # in a worker


def _make(place: int, rows: Sequence[length_windows.Rows], epoch: int) -> list[_Layout] | None:
    """Write the batches of a step to a slot; return None if they do not fit in it."""
    session, slots = _shared[-1]
    layouts = []
    offset = 0
    slot = slots[place]
    for batch in own_batches(session, rows, epoch):
        fields: _Layout = []
        for part in batch:
            if part is None:
                fields.append(None)
                continue
            values = part.numpy()
            if offset + values.nbytes > len(slot):
                return None
            slot[offset : offset + values.nbytes] = np.ascontiguousarray(values).tobytes()
            fields.append((values.dtype.str, values.shape, offset))
            offset += -(-values.nbytes // 8) * 8
        layouts.append(fields)
    return layouts

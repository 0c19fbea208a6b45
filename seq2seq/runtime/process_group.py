"""Process groups: the ranks that torchrun starts to train one model, or a single process.

torch is imported inside functions: the command line asks for the rank before it loads torch.
"""

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from seq2seq.runtime.errors import RunError, UserError, argument, is_out_of_memory

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributed import Store  # type: ignore[attr-defined]


Items = TypeVar("Items")
_TORCHRUN = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}  # set for every rank
_NUMBERS = ("RANK", "WORLD_SIZE", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
TIMEOUT = timedelta(minutes=10)  # longest wait for another rank during a run
_POLL = 0.1  # seconds between checks of whether the main process is ready
# Keys of torchrun's store, and values of the first.
_MAIN = "seq2seq/main"
_REPORTER = "seq2seq/reporter"
_READY = "ready"
_REFUSED = "refused"
_FAILED = "failed"
_LOST = (RuntimeError, ValueError, OSError)  # raised if the store is gone


class ProcessGroup:
    """The ranks that train one model together; by default, a single process."""

    def __init__(self, rank: int = 0, size: int = 1, store: "Store | None" = None) -> None:
        """`store` is torchrun's key-value store, with keys of this training alone."""
        self.rank = rank
        self.size = size
        self._store = store
        self.is_main = rank == 0  # the main process writes and reports

    def share(self, items: Items) -> Items:
        """Return this rank's share of a sequence or an array: items rank, rank + size, ..."""
        return items[self.rank :: self.size]  # type: ignore[index, no-any-return]

    def device_for(self, name: str) -> str:
        """Return the device of this rank: with CUDA, the GPU with its number on its machine."""
        if self.size == 1 or name == "cpu":
            return name
        import torch

        if name.startswith("cuda:"):
            text = "each of several processes uses the GPU with its own number"
            raise UserError(f"{text}; use cuda, cpu or auto", argument="device", value=name)
        if name not in ("auto", "cuda") or not torch.cuda.device_count():
            return name
        return f"cuda:{os.environ.get('LOCAL_RANK', self.rank)}"

    def use_device(self, device: "torch.device") -> None:
        """Exchange gradients through this device; initialises CUDA."""
        if self.size > 1 and device.type == "cuda":
            import torch

            torch.cuda.set_device(device)

    def wait_for_main(self) -> None:
        """Wait, for any time, until the main process has set up the run; raise its failure."""
        assert self._store is not None, "several ranks have a store"
        with distributed_errors():
            while not self._store.check([_MAIN]):  # collectives would time out
                time.sleep(_POLL)
            outcome = self._store.get(_MAIN).decode()
        if outcome == _REFUSED:
            raise UserError("rank 0 refused the call, the config or the data")
        if outcome == _FAILED:
            raise RunError("rank 0 failed")

    def start(self, facts: Sequence[float]) -> None:
        """Announce that the run is set up; raise UserError where ranks have read other `facts`."""
        if self._store is not None and self.is_main:
            with distributed_errors():
                self._store.set(_MAIN, _READY)
        main, *gathered = self.gather(facts)
        for rank, of_rank in enumerate(gathered, start=1):
            if of_rank != main:
                with suppress(RunError):
                    self.barrier()  # no rank leaves before all have seen the difference
                text = f"rank {rank} has another config or other data than rank 0"
                raise UserError(f"{text}: all need the same command and the same files")

    def barrier(self) -> None:
        """Wait until every rank has arrived here."""
        self.gather([0.0])

    def gather(self, values: Sequence[float]) -> list[list[float]]:
        """Return the values of every rank, in rank order; waits for no device."""
        if self.size == 1:
            return [list(values)]
        import torch

        row = torch.tensor(values, dtype=torch.float64)
        rows = [torch.empty_like(row) for _ in range(self.size)]
        with distributed_errors():
            torch.distributed.all_gather(rows, row)
        return [row.tolist() for row in rows]

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the sum over the ranks of each value."""
        return [sum(column) for column in zip(*self.gather(values), strict=True)]

    def gather_shares(self, lines: Sequence[str]) -> list[str]:
        """Return all lines in order, given those of this rank's `share`."""
        if self.size == 1:
            return list(lines)
        import torch.distributed as dist

        shares: list[list[str]] = [[] for _ in range(self.size)]
        with distributed_errors():
            dist.all_gather_object(shares, list(lines))
        return [shares[n % self.size][n // self.size] for n in range(sum(map(len, shares)))]

    def add_up(self, tensors: "Sequence[Tensor]") -> None:
        """Replace tensors by their sums over the ranks, the same bits on all."""
        if self.size == 1:
            return
        import torch.distributed as dist

        with distributed_errors():
            for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
                work.wait()


SINGLE_PROCESS = ProcessGroup()


@contextmanager
def process_group() -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started, if it did; raises UserError or RunError."""
    if (problem := _environment_problem()) is not None:
        raise UserError(f"{problem}; unset it, or start with torchrun")
    rank, size = _launched()
    if size == 1:
        yield SINGLE_PROCESS
        return
    import torch
    import torch.distributed as dist
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    with distributed_errors():
        number = _store().add(f"trainings/{_attempt()}/{rank}", 1)
        store = PrefixStore(f"{_attempt()}/{number}", _store())
        nccl = torch.cuda.is_available() and dist.is_nccl_available()
        backend = "cpu:gloo,cuda:nccl" if nccl else "gloo"
        dist.init_process_group(backend, timeout=TIMEOUT, store=store, rank=rank, world_size=size)
        group = ProcessGroup(rank, size, store)
        group.barrier()  # one that fails before all are connected would break their connections
    try:
        yield group
    except (Exception, KeyboardInterrupt) as error:
        if rank == 0:
            reports_errors()  # claims the report before the others learn of the failure
            kind = _REFUSED if isinstance(error, UserError) else _FAILED
            with suppress(RuntimeError):  # the store may be gone
                store.set(_MAIN, kind)
        raise  # the group stays open: closing it would wait for a rank that may be lost
    dist.destroy_process_group()


def world_size() -> int:
    """Return the number of processes that torchrun started."""
    return _launched()[1]


def is_main_process() -> bool:
    """Return whether this process reports, before or outside a group."""
    return _launched()[0] == 0


def reports_errors() -> bool:
    """Return whether this process reports its error: of ranks that fail together, the first."""
    rank, size = _launched()
    if size == 1:
        return True
    try:
        store = _store()
    except _LOST:
        return rank == 0
    with suppress(*_LOST):  # the store ended with the main process
        key = f"{_REPORTER}/{_attempt()}"
        return store.compare_set(key, "", str(rank)).decode() == str(rank)
    return True


def _launched() -> tuple[int, int]:
    """Return rank and world size as torchrun set them; 0 and 1 without, or if malformed."""
    if os.environ.keys() >= _TORCHRUN and _environment_problem() is None:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return 0, 1


def _environment_problem() -> str | None:
    """Return what is wrong with the variables of torchrun, None if all are set well or not all."""
    environment = os.environ
    if not environment.keys() >= _TORCHRUN:
        return None
    values = {name: environment.get(name, "0") for name in _NUMBERS}
    for name, value in values.items():
        if not re.fullmatch("[0-9]{1,9}", value):
            return f"{name}: not a number in the environment ({value!r})"
    rank, size, port, *_ = map(int, values.values())
    if rank >= size:
        return f"RANK: {rank} in the environment is not below WORLD_SIZE, {size}"
    return f"MASTER_PORT: {port} in the environment is above 65535" if port > 65535 else None


@cache
def _store() -> "Store":
    """Connect to torchrun's key-value store, which outlives the restarts of its processes."""
    import torch.distributed as dist

    rendezvous: tuple[Store, int, int]
    rendezvous = next(dist.rendezvous("env://", timeout=TIMEOUT))  # type: ignore[attr-defined]
    return rendezvous[0]


def _attempt() -> str:
    """Return how often torchrun has restarted the processes."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


@contextmanager
def distributed_errors() -> Iterator[None]:
    """Convert a failed collective (a lost peer) into a RunError."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, RunError) or is_out_of_memory(error):
            raise
        first_line = str(error).partition("\n")[0] or type(error).__name__
        reason = first_line.rpartition("] ")[2][:120]
        remedy = f"continue from the last saved state with {argument('resume', True)}"
        text = f"another process of this run ended or does not answer ({reason})"
        raise RunError(f"{text}; {remedy}") from None

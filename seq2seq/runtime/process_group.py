"""The ranks of a run: the processes that torchrun starts, which train one model together.

A process by itself is rank 0 of 1, and nothing here then does anything. Of several, each takes a
share of every batch and of the validation set; rank 0 alone writes and speaks. torch is imported
inside functions: the command line asks who speaks before it loads anything heavy.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from seq2seq.runtime.errors import RunError, UserError

if TYPE_CHECKING:
    import torch
    from torch.distributed import Store  # type: ignore[attr-defined]


class _Sliceable(Protocol):
    def __getitem__(self, key: slice, /) -> Any: ...


Sliced = TypeVar("Sliced", bound=_Sliceable)

TIMEOUT = timedelta(minutes=10)  # that ranks wait for one another, within a run
_POLL = 0.1  # seconds between two looks at whether rank 0 is ready
_FIRST, _BEGUN, _VOICE = "seq2seq/first", "seq2seq/begun", "seq2seq/voice"  # keys of the store
_READY, _REFUSED, _FAILED = "ready", "refused", "failed"


class _Joined:
    """What this process is while it has joined the others."""

    rank, count = 0, 1
    times = 0  # that it has
    store: "Store | None" = None


def rank() -> int:
    """The number of this process among those that train together."""
    return _Joined.rank


def count() -> int:
    """How many processes train together."""
    return _Joined.count


def is_first() -> bool:
    """Whether this process is the one that writes and speaks; asked before joining, too."""
    return _launched()[0] == 0


def launched() -> int:
    """How many processes torchrun started, this one included; asked before joining, too."""
    return _launched()[1]


def share(items: Sliced) -> Sliced:
    """Every n-th of the items from the rank's on: what this rank does of them."""
    own: Sliced = items[rank() :: count()]
    return own


def seed_part() -> tuple[int, ...]:
    """What tells the seeds of one rank from those of another; rank 0 draws as a single process."""
    return (rank(),) if rank() else ()


# --------------------------------------------------------------------------- joining and parting


@contextmanager
def joined() -> Iterator[None]:
    """Be one of the processes that torchrun started, if it did.

    Raises RunError where the others are not found.
    """
    number, size = _launched()
    if size > 1 or "TORCHELASTIC_RUN_ID" in os.environ:
        with distributed_errors():
            _Joined.store = _reach_store()
    if size == 1:
        yield
        return
    import torch
    import torch.distributed as dist

    assert _Joined.store is not None
    _Joined.times += 1
    nccl = dist.is_nccl_available()
    with distributed_errors():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and nccl else "gloo",
            store=_of_training(_Joined.store),
            rank=number,
            world_size=size,
            timeout=TIMEOUT,
        )
    _Joined.rank, _Joined.count = number, size
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if number == 0:
            _tell_failure(_REFUSED if isinstance(error, UserError) else _FAILED)
        raise  # without a farewell, for which a lost rank would be waited for
    _Joined.rank, _Joined.count = 0, 1
    dist.destroy_process_group()


def restarted() -> bool:
    """Whether torchrun started the ranks anew after the run had begun."""
    store = _Joined.store if _attempt() != "0" else None
    return store is not None and store.check([_begun()])


def wait_for_first() -> None:
    """Wait until rank 0 has prepared the run, however long; raises what tells that it could not."""
    if _Joined.store is None or rank() == 0:
        return
    with distributed_errors():
        store = _of_training(_Joined.store)
        while not store.check([_FIRST]):
            time.sleep(_POLL)
        found = store.get(_FIRST).decode()
    if found == _REFUSED:
        raise UserError("rank 0 refused the call, the config or the data")
    if found == _FAILED:
        raise RunError("rank 0 failed")


def prepared(facts: Sequence[float]) -> None:
    """Go on together once the run is prepared; facts are of what each rank has read.

    Raises UserError where it differs from what rank 0 read.
    """
    if _Joined.store is not None and rank() == 0:
        with distributed_errors():
            _of_training(_Joined.store).set(_FIRST, _READY)
            _Joined.store.set(_begun(), "yes")
    first, *others = gather(facts)
    for number, other in enumerate(others, start=1):
        if other != first:
            with suppress(RunError):
                gather(facts)  # nobody leaves before all have heard
            raise UserError(
                f"rank {number} has another config or other data than rank 0: "
                "all need the same command and the same files"
            )


def reports_errors() -> bool:
    """Whether an error is this process's to tell: of several that fail together the first tells."""
    number, size = _launched()
    if size == 1:
        return True
    try:
        store, key = _Joined.store or _reach_store(), f"{_VOICE}/{_attempt()}"
        return store.compare_set(key, "", str(number)).decode() == str(number)
    except (RuntimeError, ValueError, OSError):  # the store ended with rank 0
        return number == 0 or _Joined.store is not None


def device_of(name: str) -> str:
    """The device of this rank: where CUDA is wanted, the GPU of its number on its machine.

    Raises UserError where there are fewer GPUs than ranks, or one is named.
    """
    if count() == 1 or name == "cpu":
        return name
    import torch

    gpus, local = torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", rank()))
    if name.startswith("cuda:"):
        raise UserError(
            f"--device {name}: of several processes each takes the GPU of its own number; "
            "use --device cuda, cpu or auto"
        )
    if name not in ("auto", "cuda") or not gpus:
        return name
    wanted = int(os.environ.get("LOCAL_WORLD_SIZE", local + 1))
    if wanted > gpus:
        raise UserError(
            f"--device {name}: {wanted} processes on a machine with {gpus} CUDA device"
            f"{'s' if gpus > 1 else ''}; start no more than it has (--nproc-per-node), "
            "or use --device cpu"
        )
    return f"cuda:{local}"


def use_device(device: "torch.device") -> None:
    """Let what this rank exchanges of gradients go by its own device; starts CUDA."""
    if count() > 1 and device.type == "cuda":
        import torch

        torch.cuda.set_device(device)


# ----------------------------------------------------------------------------- what they exchange


def gather(values: Sequence[float]) -> list[list[float]]:
    """The values of every rank, in their order; of hosts alone: no device is waited for."""
    if count() == 1:
        return [list(values)]
    import torch
    import torch.distributed as dist

    own = torch.tensor(values, dtype=torch.float64)
    rows = [torch.empty_like(own) for _ in range(count())]
    with distributed_errors():
        dist.all_gather(rows, own)
    return [row.tolist() for row in rows]


# --------------------------------------------------------------------------------------- torchrun


def _launched() -> tuple[int, int]:
    """Rank and number of the processes that torchrun started together; 0 and 1 where it did not."""
    found = os.environ
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= found.keys():
        return 0, 1
    return int(found["RANK"]), int(found["WORLD_SIZE"])


def _tell_failure(kind: str) -> None:
    """Let those that wait for rank 0 know; what happened is rank 0's to say."""
    reports_errors()
    with suppress(RuntimeError):  # the store may be gone
        assert _Joined.store is not None
        _of_training(_Joined.store).set(_FIRST, kind)


def _reach_store() -> "Store":
    """The store of keys that torchrun keeps for its processes; it outlives their restarts."""
    import torch.distributed as dist

    found: tuple[Store, int, int]
    found = next(dist.rendezvous("env://", timeout=TIMEOUT))  # type: ignore[attr-defined]
    return found[0]


def _attempt() -> str:
    """How often torchrun has started the processes anew."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def _of_training(store: "Store") -> "Store":
    """The store, apart from what it held before a restart or in an earlier training."""
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    return PrefixStore(f"{_attempt()}/{_Joined.times}", store)


def _begun() -> str:
    """The key that tells, across restarts, that this training of the process has begun."""
    return f"{_BEGUN}/{_Joined.times}"


@contextmanager
def distributed_errors() -> Iterator[None]:
    """Turn the loss of another rank, which the network tells in its own words, into a RunError."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, RunError):
            raise
        reason = str(error).splitlines()[0].rpartition("] ")[2][:120]
        raise RunError(
            f"another process of this run ended or does not answer ({reason}); "
            "what was last saved is whole: --resume goes on from it"
        ) from None

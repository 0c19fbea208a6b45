"""Device names: their meaning, refusals, and exact float32 products."""

import ctypes
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace

import pytest
import torch

from seq2seq.runtime import device as device_module
from seq2seq.runtime.device import (
    bf16_note,
    choose_device,
    deterministic,
    product_is_exact,
    resolve_precision,
    shortest_time,
    total_memory,
)
from seq2seq.runtime.errors import UserError, is_out_of_memory

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@pytest.fixture(autouse=True)
def _same_precision_after() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def pretend(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let torch find this many CUDA devices."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda"),
        ("cpu", 0, "cpu"),
        ("cpu", 2, "cpu"),
        ("cuda", 1, "cuda"),
        ("cuda:0", 1, "cuda:0"),
        ("cuda:11", 12, "cuda:11"),
    ],
)
def test_a_name_means_a_device(
    name: str, count: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, count)
    assert choose_device(name) == torch.device(expected)


@pytest.mark.parametrize(
    ("name", "count", "found"),
    [
        ("cuda", 0, "no CUDA device"),
        ("cuda:0", 0, "no CUDA device"),
        ("cuda:1", 1, "1 CUDA device;"),
        ("cuda:2", 2, "2 CUDA devices"),
    ],
)
def test_a_device_that_is_not_there_is_refused(
    name: str, count: int, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, count)
    with pytest.raises(UserError) as refusal:
        choose_device(name)
    message = str(refusal.value)
    assert name in message
    assert found in message
    assert "--device cpu or auto" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "name", ["gpu", "", "CPU", "cpu:0", "cuda:x", "cuda:-1", "cuda 0", "mps:0"]
)
def test_a_word_that_names_no_device_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 2)
    with pytest.raises(UserError, match="must be auto, cpu, cuda, cuda:N or mps") as refusal:
        choose_device(name)
    assert f"--device {name}:" in str(refusal.value)


@pytest.mark.parametrize("available", [True, False])
def test_apples_gpu_is_used_on_request(available: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: available)
    pretend(monkeypatch, 0)
    assert choose_device("auto").type == "cpu"
    if available:
        assert choose_device("mps").type == "mps"
        return
    with pytest.raises(UserError, match="--device mps: this machine has no GPU by Apple"):
        choose_device("mps")


@pytest.mark.parametrize("exact", [True, False])
def test_the_faster_kernels_are_taken_only_where_they_are_exact(
    exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_module, "product_is_exact", lambda _: exact)
    choose_device("cpu")
    assert torch.get_float32_matmul_precision() == ("medium" if exact else "highest")


def test_products_on_this_cpu_are_as_exact_as_float32() -> None:
    choose_device("cpu")
    generator = torch.Generator().manual_seed(7)
    left = torch.randn(300, 200, generator=generator)
    right = torch.randn(200, 100, generator=generator)
    exact = left.double() @ right.double()
    assert (left @ right - exact).abs().max() < 2e-5 * exact.abs().max()


def test_a_rounded_product_is_not_exact() -> None:
    assert product_is_exact(lambda left, right: (left.double() @ right.double()).float())
    assert not product_is_exact(lambda left, right: (left.bfloat16() @ right.bfloat16()).float())


def test_products_of_the_gpu_keep_their_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_float32_matmul_precision("medium")  # as a CPU may have left it: TF32 on a GPU
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)  # torch's default
    pretend(monkeypatch, 1)
    choose_device("cuda")
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"
        ),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("unable to mmap 8 bytes from file: Cannot allocate memory (12)"),
    ],
    ids=str,
)
def test_a_failed_allocation_is_recognised(error: Exception) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        ValueError("out of memory"),
        KeyboardInterrupt(),
    ],
)
def test_another_error_is_not_a_failed_allocation(error: BaseException) -> None:
    assert not is_out_of_memory(error)


def test_the_memory_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if (found := total_memory(torch.device("cpu"))) is not None:
        assert found > 1 << 28
    card = SimpleNamespace(total_memory=7)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    assert total_memory(torch.device("cuda:1")) == 7
    monkeypatch.delattr(os, "sysconf", raising=False)
    assert total_memory(torch.device("cpu")) is None


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what is freed")
def test_memory_kept_is_given_back() -> None:
    program = """
import torch
from seq2seq.runtime.device import choose_device, trim_memory
def held():
    (line,) = (each for each in open("/proc/self/status") if each.startswith("RssAnon"))
    return int(line.split()[1]) >> 10
choose_device("cpu")
blocks = [torch.ones(2**20) for _ in range(64)]
before = held()
del blocks[:-1]
kept = before - held()
trim_memory()
print(kept < 20, before - held() > 200)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout == "True True\n", result.stdout + result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="asks for glibc's functions")
@pytest.mark.parametrize(("most", "set_"), [(2**30, 3), (2**25, 3), (0, 0)])
def test_a_threshold_that_glibc_refuses_is_lowered_or_left(
    monkeypatch: pytest.MonkeyPatch, most: int, set_: int
) -> None:
    """With one of the others set and no threshold, each large block would be mapped anew."""
    taken = []

    class Library:
        @staticmethod
        def mallopt(option: int, value: int) -> int:
            if option == -3 and value > most:
                return 0
            taken.append(option)
            return 1

    monkeypatch.setattr("ctypes.CDLL", lambda _: Library)
    choose_device("cpu")
    assert len(taken) == set_


def products_take(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    """Let products take these times, bf16 and float32 in turn; forget what was measured."""
    times = iter(seconds)
    monkeypatch.setattr(
        device_module, "shortest_time", lambda work, _clock: (work(), next(times))[1]
    )
    monkeypatch.setattr(device_module, "_bf16_time", cache(device_module._bf16_time.__wrapped__))


def test_all_runs_of_a_process_have_one_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a second measurement would say something else, as on a busy machine."""
    products_take(monkeypatch, 0.2, 1.0, 1.2, 1.0)
    assert [resolve_precision("auto", torch.device("cpu")) for _ in range(3)] == ["bf16"] * 3


def test_other_work_on_the_machine_does_not_decide_the_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Waiting counts in elapsed time only."""
    clocks: list[Callable[[], float]] = []
    monkeypatch.setattr(
        device_module,
        "shortest_time",
        lambda _, clock: clocks.append(clock) or float(len(clocks)),
    )
    assert device_module._bf16_time.__wrapped__() == 0.5
    for clock in clocks:
        began = clock()
        time.sleep(0.05)
        assert clock() - began < 0.02


@pytest.mark.parametrize(("bf16", "told"), [(3.0, "3.0 times as long"), (0.5, None)])
def test_a_processor_slow_in_bf16_is_told_of(
    monkeypatch: pytest.MonkeyPatch, bf16: float, told: str | None
) -> None:
    cpu = torch.device("cpu")
    products_take(monkeypatch, bf16, 1.0)
    note = bf16_note(cpu, "bf16")
    assert (note is None) == (told is None)
    assert told is None or told in str(note)
    assert bf16_note(cpu, "float32") is None
    assert bf16_note(torch.device("mps"), "bf16") is None


@pytest.mark.parametrize("has_bf16", [True, False])
def test_a_gpu_that_emulates_bf16_is_named(has_bf16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bf16)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "Tesla T4")
    cuda = torch.device("cuda")
    assert resolve_precision("auto", cuda) == ("bf16" if has_bf16 else "float32")
    assert bf16_note(cuda, "fp16") is None
    note = bf16_note(cuda, "bf16")
    assert note == (
        None
        if has_bf16
        else "training.precision: Tesla T4 emulates bf16; set it to fp16 or float32"
    )


def test_the_quickest_of_some_calls_counts() -> None:
    now, seconds = [0.0], iter([4.0, 3.0, 1.0, 5.0, 2.0])

    def work() -> None:
        now[0] += next(seconds)

    assert shortest_time(work, lambda: now[0]) == 1.0


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="asks glibc (2.33 or newer) what is in use",
)
def test_products_of_many_sizes_keep_few_kernels() -> None:
    if bf16_note(torch.device("cpu"), "bf16"):
        pytest.skip("this processor has no fast products in bf16, so no kernels to keep")
    program = """
import ctypes, torch
from seq2seq.runtime.device import choose_device
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "abcdefghij"]
library = ctypes.CDLL(None)
library.mallinfo2.restype = Info
choose_device("cpu")
weight = torch.randn(256, 512, dtype=torch.bfloat16)
def multiply(sizes):
    for size in sizes:
        torch.randn(8 * size, 256, dtype=torch.bfloat16) @ weight
    return library.mallinfo2().h
before = multiply(range(1, 20))
print((multiply(range(20, 400)) - before) >> 20)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 40  # MiB; 109 where each size is kept


@pytest.fixture
def clean_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Puts back what `deterministic` changes."""
    monkeypatch.delenv(WORKSPACE, raising=False)
    cudnn = torch.backends.cudnn
    for name in ("benchmark", "deterministic"):
        monkeypatch.setattr(cudnn, name, getattr(cudnn, name))
    yield monkeypatch
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("before", [None, ":4096:2:16:8", ":16:8"])
def test_on_cuda_equal_bits_are_asked_for_and_then_no_more(
    clean_cuda: pytest.MonkeyPatch, before: str | None
) -> None:
    clean_cuda.setattr(torch.cuda, "is_initialized", lambda: False)
    if before is not None:
        clean_cuda.setenv(WORKSPACE, before)
    cudnn = torch.backends.cudnn
    cudnn.benchmark, cudnn.deterministic = True, False
    with deterministic(torch.device("cuda:1"), True):
        assert os.environ[WORKSPACE] == (":16:8" if before == ":16:8" else ":4096:8")
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert cudnn.deterministic
        assert not cudnn.benchmark
    assert not torch.are_deterministic_algorithms_enabled()
    assert cudnn.benchmark
    assert not cudnn.deterministic


@pytest.mark.usefixtures("clean_cuda")
@pytest.mark.parametrize(("name", "wanted"), [("cpu", True), ("cuda", False)])
def test_on_a_cpu_nothing_need_be_asked_for(name: str, wanted: bool) -> None:
    with deterministic(torch.device(name), wanted):
        assert WORKSPACE not in os.environ
        assert not torch.are_deterministic_algorithms_enabled()


def test_where_cuda_has_started_it_is_too_late_to_ask(clean_cuda: pytest.MonkeyPatch) -> None:
    clean_cuda.setattr(torch.cuda, "is_initialized", lambda: True)
    late = "Restart it with CUBLAS_WORKSPACE_CONFIG=:4096:8 in"
    with pytest.raises(UserError, match=late), deterministic(torch.device("cuda"), True):
        pass
    clean_cuda.setenv(WORKSPACE, ":4096:8")
    with deterministic(torch.device("cuda"), True):
        pass


def test_choosing_leaves_the_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    choose_device("cpu")
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize(
    ("value", "wanted"), [(None, False), ("", False), ("0", False), ("1", True)]
)
def test_the_environment_asks_for_equal_bits(
    clean_cuda: pytest.MonkeyPatch, value: str | None, wanted: bool
) -> None:
    clean_cuda.setattr(torch.cuda, "is_initialized", lambda: False)
    clean_cuda.delenv("SEQ2SEQ_DETERMINISTIC", raising=False)
    if value is not None:
        clean_cuda.setenv("SEQ2SEQ_DETERMINISTIC", value)
    with deterministic(torch.device("cuda")):
        assert torch.are_deterministic_algorithms_enabled() == wanted

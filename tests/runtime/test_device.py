"""Choice of device and precision, exact float32 products, and deterministic mode."""

import ctypes
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import SimpleNamespace

import pytest
import torch

from seq2seq.runtime import device as device_module
from seq2seq.runtime.device import (
    choose_device,
    deterministic,
    product_is_exact,
    resolve_precision,
    shortest_time,
    tensor_cores_for_lstm,
    total_memory,
)
from seq2seq.runtime.errors import UserError, is_out_of_memory

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


@pytest.fixture(autouse=True)
def _same_precision_after() -> Iterator[None]:
    precision_before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision_before)


def pretend(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let torch report this many CUDA devices."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def test_cuda_is_refused_in_a_process_forked_from_one_that_uses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, 1)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert choose_device("cpu").type == "cpu"
    for name in ("auto", "cuda", "cuda:0"):
        with pytest.raises(UserError, match="forked from one that uses it; start processes by"):
            choose_device(name)


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
def test_a_name_selects_a_device(
    name: str, count: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, count)
    assert choose_device(name) == torch.device(expected)


@pytest.mark.parametrize(
    ("name", "count", "devices"),
    [
        ("cuda", 0, "no CUDA device"),
        ("cuda:0", 0, "no CUDA device"),
        ("cuda:1", 1, "1 CUDA device;"),
        ("cuda:2", 2, "2 CUDA devices"),
    ],
)
def test_a_missing_device_is_refused(
    name: str, count: int, devices: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, count)
    with pytest.raises(UserError) as refusal:
        choose_device(name)
    message = str(refusal.value)
    assert name in message
    assert devices in message
    assert "use cpu or auto" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "name", ["gpu", "", "CPU", "cpu:0", "cuda:x", "cuda:-1", "cuda 0", "mps:0"]
)
def test_an_unknown_device_name_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 2)
    with pytest.raises(UserError, match="must be auto, cpu, cuda, cuda:N or mps") as refusal:
        choose_device(name)
    assert f"device={name!r}:" in str(refusal.value)


@pytest.mark.parametrize("available", [True, False])
def test_apples_gpu_is_used_on_request(available: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: available)
    pretend(monkeypatch, 0)
    assert choose_device("auto").type == "cpu"
    if available:
        assert choose_device("mps").type == "mps"
        return
    with pytest.raises(UserError, match="device='mps': this machine has no GPU by Apple"):
        choose_device("mps")


@pytest.mark.parametrize("exact", [True, False])
def test_faster_kernels_are_used_only_if_they_are_exact(
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


def test_gpu_products_keep_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_float32_matmul_precision("medium")  # as a CPU may have left it: TF32 on a GPU
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)  # torch's default
    pretend(monkeypatch, 1)
    choose_device("cuda")
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_tensor_cores_of_the_lstm_are_used_in_half_precision_only(
    monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    with tensor_cores_for_lstm(torch.device("cuda"), precision):
        assert torch.backends.cudnn.allow_tf32 == (precision != "float32")
    assert not torch.backends.cudnn.allow_tf32
    with tensor_cores_for_lstm(torch.device("cpu"), precision):
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
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
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
    assert total_memory(torch.device("cpu")) > 1 << 28
    card = SimpleNamespace(total_memory=7)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    assert total_memory(torch.device("cuda:1")) == 7


@pytest.mark.thorough
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed memory")
def test_freed_memory_is_returned_to_the_system() -> None:
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


@pytest.mark.skipif(sys.platform != "linux", reason="calls functions of glibc")
@pytest.mark.parametrize(("max_value", "set_"), [(2**30, 3), (2**25, 3), (0, 0)])
def test_a_threshold_that_glibc_rejects_is_lowered_or_left_unset(
    monkeypatch: pytest.MonkeyPatch, max_value: int, set_: int
) -> None:
    """With the other options alone, glibc would map and unmap every large block."""
    accepted = []

    class Library:
        @staticmethod
        def mallopt(option: int, value: int) -> int:
            if option == -3 and value > max_value:
                return 0
            accepted.append(option)
            return 1

    monkeypatch.setattr("ctypes.CDLL", lambda _: Library)
    choose_device("cpu")
    assert len(accepted) == set_


def products_take(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    """Simulate these times of products, alternately bf16 and float32; clear the cached result."""
    times = iter(seconds)
    monkeypatch.setattr(
        device_module, "shortest_time", lambda work, _clock: (work(), next(times))[1]
    )
    monkeypatch.setattr(device_module, "_bf16_time", cache(device_module._bf16_time.__wrapped__))


def test_all_runs_of_a_process_have_the_same_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if a second measurement would differ, as on a busy machine."""
    products_take(monkeypatch, 0.2, 1.0, 1.2, 1.0)
    assert [resolve_precision("auto", torch.device("cpu")) for _ in range(3)] == ["bf16"] * 3


def test_load_on_the_machine_does_not_affect_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the measurement excludes waiting."""
    clocks: list[Callable[[], float]] = []
    monkeypatch.setattr(
        device_module, "shortest_time", lambda _, clock: clocks.append(clock) or float(len(clocks))
    )
    assert device_module._bf16_time.__wrapped__() == 0.5
    for clock in clocks:
        start = clock()
        wall_start = time.monotonic()
        time.sleep(0.05)
        assert clock() - start < (time.monotonic() - wall_start) / 2


def test_a_coarse_clock_of_cpu_time_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may show no time at all for a product."""
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    monkeypatch.setattr(time, "get_clock_info", lambda _: SimpleNamespace(resolution=0.01))
    assert device_module._bf16_time.__wrapped__() > 0


@pytest.mark.parametrize("has_bf16", [True, False])
def test_a_gpu_that_emulates_bf16_trains_in_float32(
    has_bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested_devices: list[torch.device] = []

    def choose(device: torch.device) -> AbstractContextManager[None]:
        tested_devices.append(device)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "device", choose)  # torch asks the current GPU
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bf16)
    cuda = torch.device("cuda:1")
    assert resolve_precision("auto", cuda) == ("bf16" if has_bf16 else "float32")
    assert set(tested_devices) == {cuda}


def test_the_shortest_time_is_returned() -> None:
    now = [0.0]
    seconds = iter([4.0, 3.0, 1.0, 5.0, 2.0])

    def work() -> None:
        now[0] += next(seconds)

    assert shortest_time(work, lambda: now[0]) == 1.0


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="needs mallinfo2 of glibc 2.33",
)
def test_products_of_many_sizes_cache_a_bounded_number_of_kernels() -> None:
    if device_module._bf16_time() > 1.5:
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
rows = torch.randn(8 * 800, 256, dtype=torch.bfloat16)
def multiply(sizes):
    for size in sizes:
        rows[: 8 * size] @ weight
    return library.mallinfo2().h
before = multiply(range(1, 20))
print((multiply(range(20, 400)) - before) >> 20)
print((multiply(range(400, 800)) - before) >> 20)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    kernels_of_some, kernels_of_many = map(int, result.stdout.split())
    assert kernels_of_some < 90  # MiB; 109 if each size is cached
    assert kernels_of_many < kernels_of_some + 5


@pytest.fixture
def clean_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Restore the settings that `deterministic` changes."""
    monkeypatch.delenv(WORKSPACE, raising=False)
    cudnn = torch.backends.cudnn
    for name in ("benchmark", "deterministic"):
        monkeypatch.setattr(cudnn, name, getattr(cudnn, name))
    yield monkeypatch
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("variable_before", [None, ":4096:2:16:8", ":16:8"])
def test_deterministic_mode_is_enabled_on_cuda_and_restored(
    clean_cuda: pytest.MonkeyPatch, variable_before: str | None
) -> None:
    clean_cuda.setattr(torch.cuda, "is_initialized", lambda: False)
    if variable_before is not None:
        clean_cuda.setenv(WORKSPACE, variable_before)
    cudnn = torch.backends.cudnn
    cudnn.benchmark, cudnn.deterministic = True, False
    with deterministic(torch.device("cuda:1"), True):
        assert os.environ[WORKSPACE] == (":16:8" if variable_before == ":16:8" else ":4096:8")
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert cudnn.deterministic
        assert not cudnn.benchmark
    assert not torch.are_deterministic_algorithms_enabled()
    assert cudnn.benchmark
    assert not cudnn.deterministic


@pytest.mark.usefixtures("clean_cuda")
@pytest.mark.parametrize(("name", "is_requested"), [("cpu", True), ("cuda", False)])
def test_deterministic_mode_changes_nothing_on_cpu_or_unrequested(
    name: str, is_requested: bool
) -> None:
    with deterministic(torch.device(name), is_requested):
        assert WORKSPACE not in os.environ
        assert not torch.are_deterministic_algorithms_enabled()


def test_deterministic_mode_is_refused_once_cuda_has_started(
    clean_cuda: pytest.MonkeyPatch,
) -> None:
    clean_cuda.setattr(torch.cuda, "is_initialized", lambda: True)
    late = "Restart it with CUBLAS_WORKSPACE_CONFIG=:4096:8 in"
    with pytest.raises(UserError, match=late), deterministic(torch.device("cuda"), True):
        pass
    clean_cuda.setenv(WORKSPACE, ":4096:8")
    with deterministic(torch.device("cuda"), True):
        pass


def test_choosing_a_device_does_not_change_the_random_state() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    choose_device("cpu")
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize(
    ("value", "is_enabled"), [(None, False), ("", False), ("0", False), ("1", True)]
)
def test_the_environment_variable_enables_deterministic_mode(
    clean_cuda: pytest.MonkeyPatch, value: str | None, is_enabled: bool
) -> None:
    clean_cuda.setattr(torch.cuda, "is_initialized", lambda: False)
    clean_cuda.delenv("SEQ2SEQ_DETERMINISTIC", raising=False)
    if value is not None:
        clean_cuda.setenv("SEQ2SEQ_DETERMINISTIC", value)
    with deterministic(torch.device("cuda")):
        assert torch.are_deterministic_algorithms_enabled() == is_enabled

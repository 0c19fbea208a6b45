"""No code execution: hostile files are refused in one line and have no effect."""

import ast
import gzip
import hashlib
import io
import json
import os
import pickle
import random
import shutil
import socket
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from cases.toy_text import write_small_corpus
from safetensors.torch import save

from seq2seq.__main__ import main
from seq2seq.config.schema import load_config
from seq2seq.runs import tensor_file
from seq2seq.runs.layout import BEST, CONFIG, LAST, METRICS, PREVIOUS
from seq2seq.runs.tensor_file import read_header, read_tensors, save_tensors
from seq2seq.runtime.errors import DamagedFile
from seq2seq.training.loop import train

ROOT = Path(__file__).resolve().parents[2]
MODEL = "vocabulary/joint.model"
SETTINGS = ("training.max_steps=1",)
MEMORY = 1 << 30  # bytes of address space in addition to what the process uses

resource = pytest.importorskip("resource", reason="limits and pipes are those of POSIX")


@contextmanager
def limited_memory() -> Iterator[None]:
    """Make large allocations fail."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        yield
        return
    pages = int(statm.read_text().split()[0])
    limits_before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, limits_before[1])
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits_before)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def finished(corpus: Path) -> Path:
    config = load_config(corpus, [*SETTINGS, f"run_dir={corpus.parent / 'finished'}"])
    return train(config, "cpu")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """Return the path of a file that hostile code would create."""
    return tmp_path / "marker"


class Payload:
    """Object that creates the marker when unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.marker),))


def pickled(marker: Path) -> bytes:
    return pickle.dumps(Payload(marker))


def torch_saved(marker: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save({"model": Payload(marker)}, buffer)
    return buffer.getvalue()


def zip_slip(marker: Path) -> bytes:
    """Return an archive whose entry would be extracted outside the target folder."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"../../../../../..{marker}", "slipped")
    return buffer.getvalue()


def yaml_object(marker: Path) -> bytes:
    return f"name: !!python/object/apply:os.mkdir [{str(marker)!r}]\n".encode()


def yaml_module(marker: Path) -> bytes:
    return f"!!python/object/apply:os.mkdir [{str(marker)!r}]\n".encode()


def billion_laughs(_: Path) -> bytes:
    lines = ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    for n in range(1, 30):
        lines.append(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]")
    return "\n".join(lines).encode()


def claims(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


def terabytes(_: Path) -> bytes:
    entry = {"dtype": "F32", "shape": [1 << 20, 1 << 18], "data_offsets": [0, 1 << 40]}
    return claims(json.dumps({"a": entry}).encode()) + b"\0" * 64


def deep_json(_: Path) -> bytes:
    return save({"a": torch.ones(2)}, {"seq2seq": "[" * 200_000})


CONTENTS: dict[str, Callable[[Path], bytes]] = {
    "pickle": pickled,
    "pickle by torch": torch_saved,
    "zip": zip_slip,
    "YAML object": yaml_object,
    "YAML of one object": yaml_module,
    "billion laughs": billion_laughs,
    "deep YAML": lambda _: b"a: " + b"[" * 20_000,
    "deep blocks of YAML": lambda _: b"".join(b" " * n + b"a:\n" for n in range(1200)),
    "terabytes claimed": terabytes,
    "absurd header length": lambda _: struct.pack("<Q", 2**63 - 1) + b"{}",
    "large header length": lambda _: struct.pack("<Q", 99_000_000) + b"{}",
    "deep JSON": deep_json,
    "deep JSON header": lambda _: claims(b'{"a":' * 100_000),
    "noise": lambda _: random.Random(1).randbytes(100_000),
    "gzip": lambda _: gzip.compress(b"\0" * 10_000_000),
}


def sparse(path: Path) -> None:
    path.write_bytes(b"\x08")
    os.truncate(path, 1 << 40)


PLANTED: dict[str, Callable[[Path], None]] = {
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "pipe": os.mkfifo,
    "terabyte of nothing": sparse,
    "folder": Path.mkdir,
    "link to nowhere": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
}


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Check for exit code 2 and a one-line message, with limited memory; return the message."""
    capsys.readouterr()
    with limited_memory():
        code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert err.startswith("seq2seq: error: ")
    assert err.count("\n") == 1
    return err


def assert_refused_in(
    name: str, run: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that the command that reads the file of this name reports it."""
    if name in (LAST, PREVIOUS):
        command = ("train", corpus, *SETTINGS, f"run_dir={run}", "--resume", "--device", "cpu")
        assert name in refused(capsys, *command)
    else:
        command = ("translate", "-m", run, "-i", corpus.parent / "test.src", "--device", "cpu")
        error = refused(capsys, *command)
        assert name in error


READ = (BEST, LAST, MODEL, CONFIG)


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_a_hostile_file_in_a_run_folder_is_refused(
    run: Path,
    corpus: Path,
    marker: Path,
    capsys: pytest.CaptureFixture[str],
    content: Callable[[Path], bytes],
    name: str,
) -> None:
    (run / name).write_bytes(content(marker))
    assert_refused_in(name, run, corpus, capsys)
    assert not marker.exists()


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED.keys())
def test_pipes_devices_and_links_are_refused_without_blocking(
    run: Path,
    corpus: Path,
    capsys: pytest.CaptureFixture[str],
    plant: Callable[[Path], None],
    name: str,
) -> None:
    (run / name).unlink()
    plant(run / name)
    if name == LAST:  # otherwise it would be the fallback
        (run / PREVIOUS).unlink()
    assert_refused_in(name, run, corpus, capsys)


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_a_hostile_file_on_the_command_line_has_no_effect(
    corpus: Path,
    marker: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: Callable[[Path], bytes],
) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(content(marker))
    assert str(path) in refused(capsys, "translate", "-m", path, "-i", corpus)
    with limited_memory():
        assert main(["train", str(path)]) == 2
        assert main(["train", str(corpus), f"data.test.src={path}", f"run_dir={tmp_path}/r"]) == 2
        assert main(["evaluate", "--hyp", str(path), "-r", str(corpus)]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not marker.exists()
    assert not (tmp_path / "r").exists()


# ----------------------------------------------------------------------------------------- network


def test_no_command_uses_the_network(
    run: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise AssertionError("the network is asked for")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, no_network)
    config = ("train", str(corpus), *SETTINGS, f"run_dir={tmp_path / 'new'}", "--device", "cpu")
    for call in (
        config,
        ("check", *config[1:-3], "run_dir=elsewhere", *config[-2:]),
        ("translate", "-m", str(run), "-i", str(corpus.parent / "test.src")),
        ("evaluate", "-m", str(run), "-b", "1"),
    ):
        assert main([*call]) == 0


# --------------------------------------------------------------- forged files with valid checksums


def rewrite(path: Path, **changes: object) -> None:
    """Replace values of the header, with valid checksums."""
    header, _ = read_header(path)
    tensors = {name: tensor.clone() for name, tensor in read_tensors(path).items()}
    save_tensors(path, tensors, {**header, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"limit": {"ratio": 1e300, "extra": 3}},
        {"limit": {"ratio": float("nan"), "extra": 3}},
        {"limit": {"ratio": "1", "extra": 3}},
        {"limit": {"ratio": 1.0, "extra": 10**30}},
        {"limit": [1]},
        {"config": 5},
        {"config": {"model.decoder": "bahdanau"}},
        {"vocabulary": None},
        {"vocabulary": {"joint": 5}},
        {"vocabulary": {"../../../../etc/passwd": "0"}},
        {"vocabulary": {"src": "0" * 64, "joint": "0" * 64}},
    ],
)
def test_a_forged_header_is_refused(
    run: Path, corpus: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object]
) -> None:
    rewrite(run / BEST, **changes)
    assert_refused_in(BEST, run, corpus, capsys)


@pytest.mark.parametrize(
    "changes",
    [
        {"progress": {"step": 1}},
        {"progress": None},
        {"seconds": "long"},
        {"seconds": None},
        {"limit": {}},
        {"config": 7},
        {"vocabulary": {"src": "0"}},
    ],
)
def test_a_forged_state_is_refused(
    run: Path, corpus: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object]
) -> None:
    rewrite(run / LAST, **changes)
    assert_refused_in(LAST, run, corpus, capsys)


@pytest.mark.parametrize("name", ["optimizer.step.nothing", "optimizer.", "weights.more", "x"])
def test_a_state_with_unknown_tensors_is_refused(
    run: Path, corpus: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    header, _ = read_header(run / LAST)
    tensors = {key: tensor.clone() for key, tensor in read_tensors(run / LAST).items()}
    save_tensors(run / LAST, {**tensors, name: torch.ones(())}, header)
    assert_refused_in(LAST, run, corpus, capsys)


class HastyHash:
    """SHA-256 that fails instead of hashing for hours."""

    def __init__(self, data: bytes = b"") -> None:
        self.hash = hashlib.new("sha256", data)

    def update(self, data: memoryview) -> None:
        assert len(data) < 1 << 30, "this takes hours"
        self.hash.update(data)

    def hexdigest(self) -> str:
        return str(self.hash.hexdigest())


@pytest.mark.parametrize("name", [BEST, LAST])
@pytest.mark.parametrize(("size", "memory"), [(1 << 31, 1 << 30), (1 << 40, None)])
def test_a_sparse_file_of_a_terabyte_is_not_hashed(
    run: Path,
    corpus: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    size: int,
    memory: int | None,
) -> None:
    """The sparse file has a valid header but would take hours to read."""
    text = json.dumps(read_header(run / name)[0])
    checksum = hashlib.sha256(text.encode()).hexdigest()
    valid = json.dumps({**json.loads(text), "checksum": checksum})
    tensors = {"weights.x": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}
    header = json.dumps({"__metadata__": {"seq2seq": valid}, **tensors}).encode()
    header += b" " * (-len(header) % 8)
    (run / name).write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(run / name, 8 + len(header) + size)
    if memory is not None:
        assert read_header(run / name)[1] == {"weights.x": (size // 4,)}  # it is well-formed
        sizes = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": memory}
        monkeypatch.setattr(tensor_file.os, "sysconf", sizes.__getitem__)
    monkeypatch.setattr(hashlib, "sha256", HastyHash)
    with pytest.raises(DamagedFile, match=rf"too large for .*: {size >> 30:,} GiB, more than the"):
        read_tensors(run / name)
    assert_refused_in(name, run, corpus, capsys)


def test_a_metrics_file_of_a_terabyte_is_not_read(
    run: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.truncate(run / METRICS, 1 << 40)
    command = ("train", str(corpus), f"run_dir={run}", "--resume", "--device", "cpu")
    assert main([*command]) == 1
    (last,) = capsys.readouterr().err.splitlines()[-1:]
    assert f"error: {run / METRICS}: " in last
    assert "larger than" in last


@pytest.mark.parametrize(
    ("key", "value"), [("hidden_size", 60_000), ("hidden_size", 10**12), ("embedding_size", 65_536)]
)
def test_a_model_of_absurd_size_is_refused_before_it_is_built(
    run: Path, corpus: Path, capsys: pytest.CaptureFixture[str], key: str, value: int
) -> None:
    header, _ = read_header(run / BEST)
    size = header["config"][f"model.{key}"]
    text = (run / CONFIG).read_text(encoding="utf-8")
    (run / CONFIG).write_text(text.replace(f"  {key}: {size}", f"  {key}: {value}"))
    rewrite(run / BEST, config={**header["config"], f"model.{key}": value})
    shutil.rmtree(run / "engine", ignore_errors=True)  # otherwise no weight is read
    command = ("translate", "-m", run, "-i", corpus.parent / "test.src", "--device", "cpu")
    error = refused(capsys, *command)
    assert ("does not fit" if value < 10**6 else "must be at most 65536") in error


# ------------------------------------------------------------------------------------- source code

MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "runpy", "code"}
BUILTINS = {"eval", "exec", "compile", "__import__", "execfile"}
CALLS = {
    ("torch", "load"),
    ("torch", "save"),
    ("jit", "load"),
    ("np", "load"),
    ("numpy", "load"),
    ("os", "system"),
    ("os", "popen"),
    ("yaml", "load"),
    ("yaml", "load_all"),
    ("yaml", "full_load"),
    ("yaml", "unsafe_load"),
    ("importlib", "import_module"),
}
LOADERS = {"yaml.BaseLoader", "yaml.SafeLoader"}


def unsafe_calls(source: str) -> list[str]:
    """Return the calls in a module that could execute text that it reads."""
    calls = []
    nodes = list(ast.walk(ast.parse(source)))
    without_pickles = [
        node.func
        for node in nodes
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "allow_pickle" and ast.unparse(keyword.value) == "False"
    ]
    for node in nodes:
        if node in without_pickles:
            continue
        if isinstance(node, ast.Import):
            calls += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        if isinstance(node, ast.ImportFrom):
            root = (node.module or "").split(".")[0]
            calls += [root] if root in MODULES else []
            calls += [f"{root}.{n.name}" for n in node.names if (root, n.name) in CALLS]
        if isinstance(node, ast.Name) and node.id in BUILTINS:
            calls.append(node.id)
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else ""
            owner = node.value.id if isinstance(node.value, ast.Name) else owner
            calls += [f"{owner}.{node.attr}"] if (owner, node.attr) in CALLS else []
        if isinstance(node, ast.keyword):
            value = ast.unparse(node.value)
            if node.arg == "Loader" and value not in LOADERS:
                calls.append(f"Loader={value}")
            if node.arg in ("shell", "allow_pickle") and value != "False":
                calls.append(f"{node.arg}={value}")
    return calls


SOURCES = sorted(
    path for folder in ("seq2seq", "scripts") for path in (ROOT / folder).rglob("*.py")
)


IMPORTING = (
    "seq2seq/model/trusted_scores.py",
    "seq2seq/cli/parser.py",  # imports subcommands
    "seq2seq/tools/jobs/child.py",  # imports the module of its parent's command
)


def test_no_module_executes_what_it_reads() -> None:
    """The allowed modules import a user's own score or modules named in the project's code."""
    assert len(SOURCES) > 200
    calls = {
        path.relative_to(ROOT).as_posix(): unsafe_calls(path.read_text(encoding="utf-8"))
        for path in SOURCES
    }
    allowed = {path: ["importlib.import_module"] for path in IMPORTING}
    assert {path: names for path, names in calls.items() if names} == allowed


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from marshal import loads",
        "import torch\ntorch.load(f)",
        "from torch import load",
        "import torch\nf = torch.jit.load",
        "eval('1')",
        "f = exec",
        "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)",
        "import yaml\nyaml.compose(text, Loader=yaml.UnsafeLoader)",
        "import numpy as np\nnp.load(path)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "run(command, shell=True)",
    ],
)
def test_a_planted_unsafe_call_is_found(source: str) -> None:
    assert unsafe_calls(source)


@pytest.mark.parametrize(
    "source",
    ["model.eval()", "re.compile('a')", "json.load(f)", "np.load(file, allow_pickle=False)"],
)
def test_safe_calls_of_similar_names_are_allowed(source: str) -> None:
    assert unsafe_calls(source) == []

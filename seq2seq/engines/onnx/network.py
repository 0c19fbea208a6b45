"""The two graphs of a model in ONNX Runtime: encode sources, and advance hypotheses."""

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

from seq2seq.engines.engine import Array
from seq2seq.engines.onnx.approximate import ApproximateProjection, split_projection
from seq2seq.engines.onnx.int8 import UNDEFINED
from seq2seq.runtime.errors import RunError

Arrays = dict[str, Array]  # parts of a memory or state by the names they have in the graphs

ENCODED_ROWS = 32  # sources encoded together
LOG_PROBS, LOGITS, OUTPUTS = "log_probs", "logits", "outputs"
ATTENTION, HEADS = "attention_weights", "head_weights"
_NEXT = "next_"  # prefix of the state after a step


class Stepped(NamedTuple):
    """Result of one step of one network for N hypotheses."""

    values: Array  # [N, V], log-probabilities, or logits, the caller's to overwrite
    state: Arrays  # a row per hypothesis
    undefined: Array  # [N], rows whose values are not numbers
    attention: Array | None = None  # [N, S]
    heads: Array | None = None  # [N, M, S]
    outputs: Array | None = None  # [N, R]; set where the values are approximate logits


class Network:
    """The encoder and the decoder of one model.

    Every call is batch-invariant: the kernels that ONNX Runtime chooses do not depend on the number
    of rows, nor those of the encoder on the padding. Sessions have one thread and may be shared.
    """

    def __init__(self, encoder: bytes, decoder: bytes) -> None:
        """Prepare the graphs; raises an error of ONNX Runtime for bytes that are none."""
        self._graphs = encoder, decoder
        self._encoder = session(encoder)
        self._encoded = {value.name: value.shape for value in self._encoder.get_outputs()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the graphs: sessions belong to this process."""
        return Network, self._graphs

    @cached_property
    def _decoder(self) -> "_Decoder":
        return _Decoder(self._graphs[1])

    @cached_property
    def _greedy(self) -> "_Decoder":
        """Return the decoder that stops at logits, which in float32 may be approximate."""
        content, approximate = split_projection(self._graphs[1])
        return self._decoder if content is None else _Decoder(content, approximate)

    @property
    def approximate(self) -> ApproximateProjection | None:
        """Return the projection that makes approximate logits exact; None if they are exact."""
        return self._greedy.approximate

    @cached_property
    def outputs(self) -> dict[str, list[int | str]]:
        """Return the names of a step's outputs with their dimensions."""
        return self._decoder.outputs

    def encode(self, src: Array, src_lengths: Array) -> tuple[Arrays, Arrays]:
        """Return the memory and the first state of sources [B, S] with lengths [B].

        Sources of similar length should be neighbours: ENCODED_ROWS are encoded together, without
        the padding beyond the longest of them.
        """
        values: Arrays = {}
        for start in range(0, len(src), ENCODED_ROWS):
            rows = slice(start, start + ENCODED_ROWS)
            longest = int(src_lengths[rows].max())
            inputs = {"src": src[rows, :longest], "src_lengths": src_lengths[rows]}
            parts = computed(self._encoder, None, inputs)
            for (name, dims), part in zip(self._encoded.items(), parts, strict=True):
                if name not in values:
                    values[name] = _padding(dims, src, part)
                values[name][_place(dims, rows, longest)] = part
        memory = {name: values.pop(name) for name in list(values) if name.startswith("memory_")}
        return memory, values

    def step(
        self, ids: Array, state: Arrays, memory: Arrays, log_probs: bool, read: Sequence[str]
    ) -> Stepped:
        """Advance hypotheses, given their last ids [N]; `read` names outputs to return as well."""
        decoder = self._decoder if log_probs else self._greedy
        return decoder.step({"ids": ids, **memory, **state}, read)


class _Decoder:
    """A session of the graph of a step."""

    def __init__(self, content: bytes, approximate: ApproximateProjection | None = None) -> None:
        self._session, self.approximate = session(content), approximate
        self.outputs = {value.name: value.shape for value in self._session.get_outputs()}
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._fixed = [name for name in self.outputs if name not in (ATTENTION, HEADS)]

    def step(self, values: Arrays, read: Sequence[str]) -> Stepped:
        names = self._fixed + [name for name in read if name in self.outputs]
        inputs = {name: values[name] for name in self._inputs}
        results = dict(zip(names, computed(self._session, names, inputs), strict=True))
        scores = results[LOG_PROBS] if LOG_PROBS in results else results[LOGITS]
        undefined = np.isnan(results[UNDEFINED] if UNDEFINED in results else scores[:, 0])
        state = {
            name.removeprefix(_NEXT): results[name] for name in names if name.startswith(_NEXT)
        }
        optional = (results.get(name) for name in (ATTENTION, HEADS, OUTPUTS))
        return Stepped(scores, state, undefined, *optional)


def _padding(dims: Sequence[int | str], src: Array, part: Array) -> Array:
    """Return a part of the memory or state of sources [B, S] all of which are empty."""
    sizes = zip(dims, (len(src), *part.shape[1:]), strict=True)
    shape = [src.shape[1] if name == "source" else size for name, size in sizes]
    return np.full(shape, part.dtype == bool, part.dtype)  # the mask is True at padding


def _place(dims: Sequence[int | str], rows: slice, longest: int) -> tuple[slice, ...]:
    """Return where a part of the memory has the first positions of some rows."""
    return rows, *(slice(longest if name == "source" else None) for name in dims[1:])


def session(content: bytes) -> onnxruntime.InferenceSession:
    """Return a session on the CPU of one thread: batches are searched side by side."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # fatal errors: others are raised
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def computed(
    graph: onnxruntime.InferenceSession, names: Sequence[str] | None, inputs: Arrays
) -> list[Array]:
    """Return outputs of a session; raises RunError for graphs that cannot be computed."""
    try:
        outputs: list[Array] = graph.run(names, inputs)
    except Exception as error:  # ONNX Runtime has its own classes
        if "Failed to allocate memory" in str(error):
            raise MemoryError from error
        reason = ascii(" ".join(str(error).split())[:200])
        raise RunError(f"the graphs cannot be computed ({reason}); use another model") from error
    return outputs


def threads() -> int:
    """Return the number of threads: OMP_NUM_THREADS, or that of the processors."""
    number = os.environ.get("OMP_NUM_THREADS", "")
    if number.isdecimal() and int(number):
        return int(number)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

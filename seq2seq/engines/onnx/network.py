"""Exported models behind the calls of search: encode, and advance hypotheses by one token."""

import copy
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.runtime.extras import not_installed

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Array = NDArray[Any]
Arrays = dict[str, Array]  # parts of a memory or state by the names they have in the graphs


ENCODED_ROWS = 32  # sources encoded together
_PARENTS: list[object] = []  # sessions of the process that this one was forked from


class Advanced(NamedTuple):
    """Result of one step for N hypotheses."""

    log_probs: Array  # [N, V], the caller's to overwrite
    state: list[Arrays]  # for each network, a row per hypothesis
    attention_weights: Array | None  # [N, S]


class Network:
    """The two graphs of one model."""

    def __init__(self, encoder: bytes, decoder: bytes) -> None:
        """Prepare the graphs; raises an error of ONNX Runtime for bytes that are none."""
        self._graphs = encoder, decoder
        self._encoder, self._decoder = session(encoder), session(decoder)
        self._encoded = {each.name: each.shape for each in self._encoder.get_outputs()}
        inputs = self._decoder.get_inputs()
        self._inputs = [each.name for each in inputs]
        self._dims = {each.name: each.shape for each in inputs}
        self._outputs = [each.name for each in self._decoder.get_outputs()]
        self._state = [
            name.removeprefix("next_") for name in self._outputs if name.startswith("next_")
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the graphs: sessions belong to this process."""
        return Network, self._graphs

    @property
    def attends(self) -> bool:
        """Return whether steps have attention weights."""
        return "attention_weights" in self._outputs

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
            for name, part in zip(self._encoded, self._encoder.run(None, inputs), strict=True):
                if name not in values:
                    values[name] = self._padding(name, src, part)
                values[name][self._place(name, rows, longest)] = part
        state = {name: values.pop(name) for name in self._state if name in values}
        for name in self._state:  # these start at zero
            if name not in state:
                width = self._dims[name][1]
                width = src.shape[1] if width == "source" else width
                state[name] = np.zeros((len(src), width), np.float32)
        return values, state

    def _padding(self, name: str, src: Array, part: Array) -> Array:
        """Return a part of the memory of sources [B, S] all of which are empty."""
        dims = zip(self._encoded[name], (len(src), *part.shape[1:]), strict=True)
        shape = [src.shape[1] if name == "source" else size for name, size in dims]
        return np.full(shape, -np.inf if name == "mask" else 0, part.dtype)

    def _place(self, name: str, rows: slice, longest: int) -> tuple[slice, ...]:
        """Return where a part of the memory has the first positions of some rows."""
        dims = self._encoded[name][1:]
        return rows, *(slice(longest if each == "source" else None) for each in dims)

    def advance(self, ids: Array, state: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        """Return the outputs of a step by name and the next state."""
        given = {"ids": ids, **memory, **state}
        found = self._decoder.run(None, {name: given[name] for name in self._inputs})
        values = dict(zip(self._outputs, found, strict=True))
        undefined = np.isnan(values.pop("output_sum", 0.0))
        if undefined.any():
            values["log_probs"][undefined[:, 0]] = np.nan
        return values, {name: values.pop(f"next_{name}") for name in self._state}


class ExportedModel:
    """One exported model, or several over the same vocabularies as an ensemble.

    Every call is batch-invariant: the kernels that ONNX Runtime chooses do not depend on the number
    of rows, nor those of the encoder on the padding.
    """

    def __init__(self, networks: Sequence[Network], topk: bytes) -> None:
        self.networks, self._graph = list(networks), topk
        self._topk, self._process = session(topk), os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the graphs: sessions belong to this process."""
        return ExportedModel, (self.networks, self._graph)

    @property
    def attends(self) -> bool:
        """Return whether steps have attention weights."""
        return any(each.attends for each in self.networks)

    def encode(self, src: Array, src_lengths: Array) -> tuple[list[Arrays], list[Arrays]]:
        """Return the memory and the first state of sources [B, S], for each network."""
        if os.getpid() != self._process:
            self._renew()
        found = [each.encode(src, src_lengths) for each in self.networks]
        return [memory for memory, _ in found], [state for _, state in found]

    def _renew(self) -> None:
        """Create the sessions of a forked process, which has no threads of its parent's.

        Those of the parent are kept: freeing them would wait for their threads.
        """
        _PARENTS.extend([*self.networks, self._topk])
        self.networks = [copy.copy(each) for each in self.networks]
        self._topk, self._process = session(self._graph), os.getpid()

    def advance(self, ids: Array, state: list[Arrays], memory: list[Arrays]) -> Advanced:
        """Advance N = B * K hypotheses, given their last ids [N], by one target position.

        An ensemble has the log of the mean probability and the mean attention weights.
        """
        steps = [
            network.advance(ids, *parts)
            for network, *parts in zip(self.networks, state, memory, strict=True)
        ]
        weights = [
            values["attention_weights"] for values, _ in steps if "attention_weights" in values
        ]
        log_probs, mean_weights = steps[0][0]["log_probs"], weights[0] if weights else None
        if len(steps) > 1:
            for values, _ in steps[1:]:
                log_probs = np.logaddexp(log_probs, values["log_probs"])
            log_probs -= np.float32(np.log(len(steps)))
            mean_weights = np.mean(weights, axis=0) if weights else None
        return Advanced(log_probs, [new for _, new in steps], mean_weights)

    def topk(self, log_probs: Array, scores: Array, count: int) -> tuple[Array, Array]:
        """Return the best continuations of the hypotheses of each sentence, best first.

        Takes log-probabilities [B * K, V] and scores [B, K]; returns the `count` largest sums
        [B, count] and their places [B, count] in the K * V of a sentence.
        """
        count = min(count, scores.shape[1] * log_probs.shape[1])
        inputs = {"log_probs": log_probs, "scores": scores, "count": np.array([count])}
        best, places = self._topk.run(None, inputs)
        return best, places


def session(graph: bytes) -> "InferenceSession":
    """Return a session on the CPU with as many threads as OMP_NUM_THREADS, if that is set.

    Raises UserError if ONNX Runtime is not installed.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise not_installed("an exported model needs ONNX Runtime", "runtime") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    options.intra_op_num_threads = _threads()
    # Threads that wait sleep; otherwise they would take a core from the thread they wait for.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _threads() -> int:
    """Return the number of threads, 0 for ONNX Runtime's own choice."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() else 0

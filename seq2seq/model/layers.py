"""Small layers used throughout the network: products, embedding, dropout, sigmoid and tanh."""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PRODUCT_ROWS = 256  # on CPU, longer products in half precision have a multiple of this many rows
DROPOUT_LEVELS = 256  # distinct dropout rates on CPU: one random byte per element
MINUS_ONE = torch.tensor(-1.0)  # a Python number would be converted for each operation


class Linear(nn.Linear):
    """Linear layer whose products in half precision recur in few sizes on CPU; see `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `F.linear` of inputs [..., I]: [..., O], with its rows padded on CPU under autocast.

    oneDNN, which multiplies in half precision there, compiles a kernel for each number of rows:
    with AMX for 2 to 8 ms, longer than most products take. The number of all positions of a batch
    hardly recurs, so it is padded to a multiple of `PRODUCT_ROWS`.
    """
    rows = inputs.shape[:-1].numel()
    kind = inputs.device.type
    if kind != "cpu" or rows < PRODUCT_ROWS or not torch.is_autocast_enabled(kind):
        return F.linear(inputs, weight, bias)
    flat = inputs.to(torch.get_autocast_dtype(kind)).reshape(rows, -1)
    product = F.linear(pad_rows(flat, PRODUCT_ROWS), weight, bias)
    return product[:rows].view(*inputs.shape[:-1], -1)


def weight_gradient(grads: Tensor, inputs: Tensor) -> Tensor:
    """Return `sum over rows of g x^T` [O, I] of gradients [..., O] and inputs [..., I].

    The rows are padded as in `linear`.
    """
    left = grads.flatten(0, -2)
    right = inputs.flatten(0, -2)
    if left.device.type == "cpu" and left.dtype.itemsize == 2 and len(left) >= PRODUCT_ROWS:
        left = pad_rows(left, PRODUCT_ROWS)
        right = pad_rows(right, PRODUCT_ROWS)
    return left.t() @ right


def pad_rows(rows: Tensor, multiple: int) -> Tensor:
    """Append rows of zeros to rows [M, *] up to a multiple."""
    padding = -len(rows) % multiple
    return F.pad(rows, (0, 0, 0, padding)) if padding else rows


class ScaledEmbedding(nn.Embedding):
    """Embedding multiplied by `sqrt(E)`: ids [...] -> [..., E] (Vaswani et al. 2017, section 3.4).

    Rows are initialised with variance 1 / E, which suits a tied output projection; the scaling
    gives the LSTM inputs of variance 1. Without it training starts several times more slowly.
    """

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:  # normal_ on meta tensors imports torch's compiler (2 seconds)
            nn.init.normal_(self.weight, std=self.embedding_dim**-0.5)

    def forward(self, input: Tensor) -> Tensor:
        scaled: Tensor = super().forward(input) * self.embedding_dim**0.5
        return scaled


class Dropout(nn.Dropout):
    """Inverted dropout (Srivastava et al. 2014) with cheap masks on CPU.

    On CPU each element is decided by one random byte, which rounds the rate to a multiple of 1/256:
    drawing torch's own masks takes longer than the matrix products around them. Rates below 1/512
    and above 511/512 are exact.
    """

    if TYPE_CHECKING:

        def __call__(self, input: Tensor) -> Tensor: ...

    def forward(self, input: Tensor) -> Tensor:
        levels = round(self.p * DROPOUT_LEVELS)
        if not self.training or levels % DROPOUT_LEVELS == 0 or input.device.type != "cpu":
            return super().forward(input)
        words = torch.empty(-(-input.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        random_bytes = words.view(torch.uint8)[: input.numel()]
        mask = (random_bytes >= levels).to(input.dtype)
        return input * mask.mul_(DROPOUT_LEVELS / (DROPOUT_LEVELS - levels)).view(input.shape)


class DropoutRates(NamedTuple):
    """Dropout probabilities of the parts of the network."""

    word: float = 0.0
    embedding: float = 0.0
    hidden: float = 0.0
    output: float = 0.0

    @classmethod
    def of(cls, dropout: "float | DropoutRates") -> "DropoutRates":
        """Return the probability of each part; one number is that of all but `word`."""
        if isinstance(dropout, DropoutRates):
            return dropout
        return cls(embedding=dropout, hidden=dropout, output=dropout)


class EmbeddingDropout(nn.Module):
    """Dropout of single entries of embeddings, and of complete ones: word dropout.

    Word dropout zeroes the embeddings of randomly chosen positions of the source and of the
    target inputs and multiplies the others by `1 / (1 - p)` (Sennrich et al. 2016, WMT). Gal &
    Ghahramani (2016) drop all occurrences of a word in a sentence at once, here each one is drawn.
    """

    def __init__(self, rates: DropoutRates) -> None:
        super().__init__()
        self.word = Dropout(rates.word)
        self.entries = Dropout(rates.embedding)

    if TYPE_CHECKING:

        def __call__(self, embedded: Tensor) -> Tensor: ...

    def forward(self, embedded: Tensor) -> Tensor:
        """Drop out of embeddings [..., E]."""
        if self.training and self.word.p > 0:
            embedded = embedded * self.word(embedded.new_ones(*embedded.shape[:-1], 1))
        return self.entries(embedded)


def tanh(values: Tensor) -> Tensor:
    """Return `tanh x = 2 s(2x) - 1`, with s the logistic function.

    On CPU this is about five times as fast as `torch.tanh`, with an absolute error of at most two
    machine epsilons. Half precision, where that is too much, and other devices use `torch.tanh`.
    """
    if not _by_sigmoid(values):
        return values.tanh()
    if not values.requires_grad:
        return tanh_into(values, torch.empty_like(values))
    result: Tensor = _Tanh.apply(values)  # type: ignore[no-untyped-call]
    return result


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        result = tanh_into(values, torch.empty_like(values))
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (grad,) = grads
        (result,) = ctx.saved_tensors
        return torch.addcmul(grad, grad * result, result, value=-1)  # grad * (1 - tanh^2)


def tanh_into(values: Tensor, out: Tensor) -> Tensor:
    """Write `tanh` to `out`, which may be `values`; not differentiable."""
    if not _by_sigmoid(values):
        return torch.tanh(values, out=out)
    return torch.add(MINUS_ONE, torch.add(values, values, out=out).sigmoid_(), alpha=2, out=out)


def activate_gates_(gates: Tensor, size: int) -> None:
    """Apply the logistic function to gates [N, G] in place, and tanh to their last `size` columns.

    On CPU a single pass over all columns serves both functions.
    """
    candidates = gates[:, -size:]
    if not _by_sigmoid(gates):
        gates[:, :-size].sigmoid_()
        candidates.tanh_()
        return
    torch.add(candidates, candidates, out=candidates)
    gates.sigmoid_()
    torch.add(MINUS_ONE, candidates, alpha=2, out=candidates)  # tanh x = 2 s(2x) - 1


def _by_sigmoid(values: Tensor) -> bool:
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return False  # a graph has the operator
    return values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64)

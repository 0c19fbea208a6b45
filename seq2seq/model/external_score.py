"""Attention scores from outside of the package, such as `model.score: my_scores:Cosine`."""

from importlib import import_module
from typing import cast

import torch
from torch import Tensor, nn

from seq2seq.model.attention import ScoreFunction

_BATCH, _BEAM, _LENGTH = 2, 3, 5  # sizes of the trial call


class ScoreError(ValueError):
    """A score from outside that cannot be imported or does not fit `ScoreFunction`."""


def external_score(
    name: str, query_size: int, output_size: int, attention_size: int
) -> ScoreFunction:
    """Return the score `package.module:Class`, made of three sizes.

    Raises ScoreError, in one line, if the class cannot be imported or made, or does not fit.
    """
    made = _made(name, query_size, output_size, attention_size)
    if not isinstance(made, nn.Module):
        raise ScoreError(f"{name} must be a subclass of torch.nn.Module")
    score = cast(ScoreFunction, made)
    for call in ("project", "weights"):
        if not callable(getattr(score, call, None)):
            raise ScoreError(f"{name} has no {call}; see ScoreFunction in seq2seq.model.attention")
    if not hasattr(score, "context_size"):
        raise ScoreError(
            f"{name} has no context_size; see ScoreFunction in seq2seq.model.attention"
        )
    if _weights(name, score) is not None:
        raise ScoreError(
            f"{name}.weights() must return None: the fused pass implements the package's scores "
            "alone"
        )
    _check_state(name, made)
    return score


def is_external(score: nn.Module) -> bool:
    """Return whether the class of a score is from outside of the package."""
    package = __name__.partition(".")[0]
    return type(score).__module__.partition(".")[0] != package


def check_external_score(name: str, query_size: int, output_size: int, attention_size: int) -> None:
    """Raise ScoreError for a score that `external_score` refuses, or whose results do not fit."""
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        score = external_score(name, query_size, output_size, attention_size)
        try:
            _try(name, score, query_size, output_size)
        except ScoreError:
            raise
        except (Exception, SystemExit) as error:
            raise ScoreError(f"{name} fails in a trial call ({_described(error)})") from error


def _made(name: str, *sizes: int) -> object:
    """Import the class and call it with the sizes."""
    module, _, attribute = name.partition(":")
    try:
        kind = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ScoreError(
            f"{name} cannot be imported ({error}); install it, or put its folder on PYTHONPATH"
        ) from None
    except (Exception, SystemExit) as error:  # whatever the module does when it is imported
        raise ScoreError(f"{name} cannot be imported ({_described(error)})") from error
    if not isinstance(kind, type):
        raise ScoreError(f"{name} is not a class")
    try:
        made: object = kind(*sizes)
    except (Exception, SystemExit) as error:
        raise ScoreError(
            f"{name} cannot be made of query_size, output_size and attention_size "
            f"({_described(error)})"
        ) from error
    return made


def _weights(name: str, score: ScoreFunction) -> object:
    try:
        return score.weights()
    except (Exception, SystemExit) as error:
        raise ScoreError(f"{name}.weights() fails ({_described(error)})") from error


def _check_state(name: str, module: nn.Module) -> None:
    """Raise ScoreError for tensors that checkpoints do not hold."""
    for path, part in module.named_modules():
        plain = [key for key, value in vars(part).items() if isinstance(value, Tensor)]
        if names := [*plain, *part._buffers]:
            place = ".".join(filter(None, (path, names[0])))
            raise ScoreError(
                f"{name}.{place} is a tensor but no parameter, which checkpoints do not hold; make "
                "it an nn.Parameter, or compute it in forward"
            )


def _try(name: str, score: ScoreFunction, query_size: int, output_size: int) -> None:
    """Raise ScoreError for keys, values or scores of a small call that cannot be used."""
    keys, values = score.project(torch.randn(_BATCH, _LENGTH, output_size, requires_grad=True))
    if keys.shape[:2] != (_BATCH, _LENGTH):
        raise ScoreError(f"{name}.project: keys have the shape {list(keys.shape)}, not [B, S, *]")
    if values.shape != (_BATCH, _LENGTH, score.context_size):
        raise ScoreError(
            f"{name}.project: values have the shape {list(values.shape)}, not [B, S, context_size] "
            f"({_BATCH}, {_LENGTH}, {score.context_size})"
        )
    query = torch.randn(_BATCH, _BEAM, query_size, requires_grad=True)
    scores = score(query, keys)
    if scores.shape != (_BATCH, _BEAM, _LENGTH):
        raise ScoreError(
            f"{name}: scores have the shape {list(scores.shape)}, not [B, K, S] "
            f"({_BATCH}, {_BEAM}, {_LENGTH})"
        )
    if not (scores.is_floating_point() and scores.isfinite().all()):
        raise ScoreError(f"{name}: scores are not finite floating-point numbers")
    if not scores.requires_grad:
        raise ScoreError(f"{name}: scores have no gradient, so that it learns nothing")
    if not _is_pointwise(score, query, keys):
        raise ScoreError(f"{name}: the scores of a query depend on the other queries of the call")


def _is_pointwise(score: ScoreFunction, query: Tensor, keys: Tensor) -> bool:
    """Return whether queries of one call are scored as alone, when dropout is off as in search."""
    module = cast(nn.Module, score).eval()
    together = module(query, keys)
    alone = torch.cat([module(query[:, k : k + 1], keys) for k in range(_BEAM)], dim=1)
    return torch.allclose(together, alone, rtol=1e-3, atol=1e-4)


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:200]

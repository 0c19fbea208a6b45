"""Attention scores from outside of the package, such as `model.score: my_scores:Cosine`."""

from typing import cast

import torch
from torch import Tensor, nn

from seq2seq.model.attention import ScoreFunction
from seq2seq.model.trusted_scores import imported_object, is_trusted, trusted_object

_BATCH, _BEAM, _LENGTH = 2, 3, 5  # sizes of the trial call


class ScoreError(ValueError):
    """A score from outside that cannot be imported or does not fit `ScoreFunction`."""


class UntrustedScore(ScoreError):
    """A score that a file names and the user does not, and that is not imported already."""

    def __init__(self, name: str) -> None:
        text = "is code outside of seq2seq, which a config or a run folder alone does not run"
        super().__init__(f"{name} {text}")
        self.name = name


def external_score(
    name: str, query_size: int, output_size: int, attention_size: int
) -> ScoreFunction:
    """Return the score `package.module:Class`, made of three sizes.

    Raises ScoreError, in one line, if the class cannot be imported or made, or does not fit, and
    UntrustedScore if the user does not name it.
    """
    kind = _score_class(name)
    try:
        score = kind(query_size, output_size, attention_size)
    except (Exception, SystemExit) as error:
        sizes = "query_size, output_size and attention_size"
        raise ScoreError(f"{name} cannot be made of {sizes} ({_described(error)})") from error
    if not hasattr(score, "context_size"):
        raise _misfit(name)
    for path, module in score.named_modules():
        plain = [key for key, value in vars(module).items() if isinstance(value, Tensor)]
        if names := [*plain, *module._buffers]:
            place = ".".join(filter(None, (path, names[0])))
            text = f"{name}.{place} is a tensor but no parameter, which checkpoints do not hold;"
            raise ScoreError(f"{text} make it an nn.Parameter, or compute it in forward")
    return cast(ScoreFunction, score)


def is_external(score: nn.Module) -> bool:
    """Return whether the class of a score is from outside of the package."""
    package = __name__.partition(".")[0]
    return type(score).__module__.partition(".")[0] != package


def check_external_score(name: str, query_size: int, output_size: int, attention_size: int) -> None:
    """Raise ScoreError for a score that `external_score` refuses, or whose results do not fit."""
    with torch.random.fork_rng(devices=[]):
        score = external_score(name, query_size, output_size, attention_size)
        try:
            _try(name, score, query_size, output_size)
        except ScoreError:
            raise
        except (Exception, SystemExit) as error:
            raise ScoreError(f"{name} fails in a trial call ({_described(error)})") from error


def _score_class(name: str) -> type[nn.Module]:
    """Return the class of a score that is named or imported; an object of another kind is refused.

    It is examined before it is called: a stranger chooses the name and the sizes.
    """
    if not is_trusted(name):
        kind = imported_object(name)
        if not _is_score_class(kind):
            raise UntrustedScore(name)
        return cast(type[nn.Module], kind)
    try:
        kind = trusted_object(name)
    except (Exception, SystemExit) as error:  # whatever the module does when it is imported
        remedy = "install it, or put its folder on PYTHONPATH"
        raise ScoreError(f"{name} cannot be imported ({_described(error)}); {remedy}") from error
    if not _is_score_class(kind):
        raise _misfit(name)
    return cast(type[nn.Module], kind)


def _is_score_class(kind: object) -> bool:
    """Return whether an object is a module class with the calls of a score; runs no code of it."""
    # isinstance would ask an object that is no class for its `__class__`.
    if not issubclass(type(kind), type) or not issubclass(cast(type, kind), nn.Module):
        return False
    own_classes = [base for base in cast(type, kind).__mro__ if base not in nn.Module.__mro__]
    return {"project", "forward", "weights"} <= {key for base in own_classes for key in vars(base)}


def _misfit(name: str) -> ScoreError:
    text = f"{name} must be a torch.nn.Module with project, forward, weights and context_size;"
    return ScoreError(f"{text} see ScoreFunction in seq2seq.model.attention")


def _try(name: str, score: ScoreFunction, query_size: int, output_size: int) -> None:
    """Raise ScoreError for keys, values or scores of a small call that cannot be used."""
    if score.weights() is not None:
        raise ScoreError(f"{name}.weights() must return None: the fused pass has other scores")
    keys, values = score.project(torch.randn(_BATCH, _LENGTH, output_size))
    scores = score(torch.randn(_BATCH, _BEAM, query_size), keys)
    shapes = {
        "values": (values, (_BATCH, _LENGTH, score.context_size), "[B, S, context_size]"),
        "scores": (scores, (_BATCH, _BEAM, _LENGTH), "[B, K, S]"),
    }
    for kind, (tensor, expected, text) in shapes.items():
        if tensor.shape != expected:
            reason = f"{kind} have the shape {list(tensor.shape)}, not {text}, {[*expected]}"
            raise ScoreError(f"{name}: {reason}")
    if not scores.isfinite().all():
        raise ScoreError(f"{name}: scores are not finite")


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:200]

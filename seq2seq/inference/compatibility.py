"""Check that models fit together in an ensemble."""

from pathlib import Path

from seq2seq.runtime.errors import UserError


def check_ensemble(
    run: Path, first: Path, same_vocabulary: bool, direction: str, first_direction: str
) -> None:
    """Raise UserError if a run has another vocabulary or direction than the first."""
    if not same_vocabulary:
        raise UserError(
            f"{run}: has another vocabulary than {first}; combine runs that share one in an "
            "ensemble"
        )
    if direction != first_direction:
        raise UserError(
            f"{run}: translates {direction} but {first} {first_direction}; combine runs of one "
            "direction in an ensemble"
        )

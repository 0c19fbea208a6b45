"""Models that come with the package: exports that are called by their names, such as en-fr."""

from pathlib import Path

from seq2seq.runs.engine_folder import is_export

FOLDER = Path(__file__).parents[1] / "packaged_models"


def packaged_models() -> list[str]:
    """Return the names of the models that come with the package."""
    return sorted(path.name for path in FOLDER.glob("*") if is_export(path))


def is_packaged(model: Path | str) -> bool:
    """Return whether a model is named by its name in the package, where no path is called so."""
    return not Path(model).exists() and str(model) in packaged_models()


def model_folder(model: Path | str) -> Path:
    """Return the folder of a model, which is named by a path or by its name in the package."""
    return FOLDER / model if is_packaged(model) else Path(model)


def packaged_hint() -> str:
    """Return what a message says about the models of the package; empty if there are none."""
    names = " and ".join(f"-m {name}" for name in packaged_models())
    return f"; the package comes with {names}" if names else ""

"""Variables of the programs that tests start."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def project_environment(*folders: Path) -> dict[str, str]:
    """Return this process's variables, with the project and further folders on PYTHONPATH.

    What is there already stays: this process may find its packages by it alone.
    """
    python_path = os.environ.get("PYTHONPATH")
    parts = [ROOT, *folders, *([python_path] if python_path else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, parts))}

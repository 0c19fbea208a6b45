"""Time of a training: wall time over all processes of a run, and speed in target tokens."""

import time


class Clock:
    """Time trained, over all processes of a run, and speed in target tokens."""

    def __init__(self, before: float) -> None:
        """Start with the seconds trained by earlier processes."""
        self._began = time.monotonic() - before
        self.saved_seconds = before  # at the last save
        self._process_began = self._window = time.monotonic()
        self._tokens = 0
        self.steps, self._pauses, self._paused = 0, 0, 0.0  # counted by this process

    @property
    def seconds(self) -> float:
        """Wall time since training began, validations included."""
        return time.monotonic() - self._began

    def count(self, tokens: int) -> None:
        """Count a step and its target tokens."""
        self._tokens += tokens
        self.steps += 1

    def leave_out(self, seconds: float) -> None:
        """Exclude the seconds of a validation from the speed."""
        self._window += seconds
        self._paused += seconds
        self._pauses += 1

    @property
    def step_seconds(self) -> float:
        """Mean seconds per step of this process, without validations."""
        return (time.monotonic() - self._process_began - self._paused) / max(1, self.steps)

    @property
    def validation_seconds(self) -> float:
        """Mean seconds per validation of this process; 0 before the first."""
        return self._paused / max(1, self._pauses)

    def speed(self) -> float:
        """Return the target tokens per second since the last call."""
        now = time.monotonic()
        speed = self._tokens / max(now - self._window, 1e-9)
        self._window, self._tokens = now, 0
        return speed


def minutes(seconds: float) -> str:
    """Format seconds as minutes:seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"

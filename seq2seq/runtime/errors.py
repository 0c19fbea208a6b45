"""Errors reported to the user as one line: place, problem, remedy."""


class UserError(ValueError):
    """Invalid command, config or data, found before any work starts (exit code 2)."""


class RunError(RuntimeError):
    """Failure of work that has already started (exit code 1)."""


class UnreadableFile(UserError):
    """Existing file that cannot be opened now; nothing is known of its content."""


class DamagedFile(UserError):
    """Corrupt file in a run folder: its content is not what was written to it."""

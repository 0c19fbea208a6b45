"""The two failures a user may see: each is one line saying what, where and how to mend it."""


class UserError(ValueError):
    """A mistake in the call, the config or the data, found before any work (exit code 2)."""


class RunError(RuntimeError):
    """Work that had begun and could not go on (exit code 1)."""


class DamagedFile(UserError):
    """A file of a run folder whose content is not what was written there."""

"""Handlers of SIGINT that let the first Ctrl-C wait, and so leave the second one to a thread."""


class PatientHandler:
    """Handler that acts later on the first SIGINT; a command ends at the second, whatever runs.

    Python calls no handler while torch or ONNX Runtime computes: `cli.interruption` counts signals
    as they arrive, for handlers of this class.
    """

    def __call__(self, number: int, frame: object) -> None:
        """Take note of a signal."""
        raise NotImplementedError

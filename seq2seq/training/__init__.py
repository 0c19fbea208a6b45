"""The training loop and its parts: step, loss, optimizer, validation, stopping, metrics."""

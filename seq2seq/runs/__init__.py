"""Run folders on disk: layout, checkpoints, resumable training state and provenance."""

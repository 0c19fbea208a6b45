"""Run folders on disk: layout, checkpoints, resumable training state and provenance.

`training_state.open_folder` locks a run folder, so that two trainings never write to one; the lock
is that of `runtime/locks.py`, which the cache of tokens and the record of a distillation use, too.
"""

"""Measurements of `scripts/benchmark.py`."""

"""Attention-based recurrent translation: two text files and one YAML in, a scored model out."""

__version__ = "0.1.0"

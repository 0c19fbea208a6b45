"""Formats of a file with both sides of a parallel text: TSV, CSV, JSON lines and Parquet."""

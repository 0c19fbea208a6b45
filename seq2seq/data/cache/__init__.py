"""On-disk cache of encoded training text, verified by checksum and rebuilt if damaged."""

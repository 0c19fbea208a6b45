"""The run folder: files that are whole, locked, and known to belong together."""

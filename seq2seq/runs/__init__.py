"""Files of a run folder: locked, checked, and known to belong together."""

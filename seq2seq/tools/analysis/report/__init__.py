"""Report of a run as one self-contained page."""

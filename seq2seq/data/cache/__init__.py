"""Training text and its ids in files that are mapped into memory."""

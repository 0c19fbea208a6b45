"""Tools around the trainer: analyses, corpora, the server, and their commands."""

"""Statistics of a corpus, findings about it, and a forecast of the training cost."""

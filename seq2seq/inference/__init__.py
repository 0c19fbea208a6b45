"""From source lines to translations, and scores of given translations."""

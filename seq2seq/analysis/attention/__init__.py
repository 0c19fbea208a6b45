"""Who looked where, for the eye."""

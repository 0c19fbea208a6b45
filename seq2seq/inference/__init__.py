"""What search is made of, and scores of given translations."""

"""Corpora that are made of others: divided, translated."""

"""Analyses of data, runs and attention weights; no package but `cli` knows them."""

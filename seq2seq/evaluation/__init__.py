"""BLEU, chrF and TER with signatures, confidence intervals and significance tests."""

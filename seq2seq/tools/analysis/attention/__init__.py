"""Attention weights as heat maps: PNG, SVG, PDF and HTML."""

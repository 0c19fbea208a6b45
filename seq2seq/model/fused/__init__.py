"""Fused training passes: a target sequence is one autograd node, equal to stacked steps."""

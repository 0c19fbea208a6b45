"""Fused passes over time, equal to the stacked steps that define the model."""

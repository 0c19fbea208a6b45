"""Train and compare several variants of one config."""

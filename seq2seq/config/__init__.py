"""What a config is made of."""

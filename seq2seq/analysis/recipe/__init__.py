"""Recipe for a text: a config with vocabulary, sizes and schedule chosen by data and machine."""

"""Names: found in parallel text, masked by placeholders, and spelled in the target's script."""

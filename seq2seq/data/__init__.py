"""From files of parallel text to padded batches of token ids."""

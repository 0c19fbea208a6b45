"""From encoded sentences to hypotheses: greedy, beam and sampled search, and constraints."""

"""The two synchronous grammars that write the demo corpora: English-French and English-Marathi."""

"""Vocabularies of tokens: SentencePiece models, trained or given."""

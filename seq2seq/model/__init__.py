"""The network: ids and sizes in, tensors out; no text, files, vocabulary or config.

Shape letters: B batch, S source length, T target length, E embedding, H hidden, A attention size,
R output layer, L layers, V vocabulary, K beam size, N rows in search (B * K). Batch first.
"""

"""What `seq2seq compare` is made of."""

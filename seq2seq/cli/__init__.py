"""The `seq2seq` command: one module for each subcommand."""

"""The `seq2seq` command: arguments, subcommands, exit codes, stdin and stdout."""

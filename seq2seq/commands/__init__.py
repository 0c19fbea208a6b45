"""What the subcommands share: arguments, lines in, lines out."""

"""The subcommands: their arguments, what they read and what they print."""

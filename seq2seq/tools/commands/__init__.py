"""The subcommands of the tools."""

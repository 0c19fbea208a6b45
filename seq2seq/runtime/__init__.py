"""What every package builds on: errors, devices, files, locks, process groups, console."""

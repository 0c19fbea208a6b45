"""Basics of every package: errors, devices, files, locks, process groups and console output."""

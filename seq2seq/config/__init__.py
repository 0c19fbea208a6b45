"""Typed configuration: YAML and overrides become one frozen `Config`."""

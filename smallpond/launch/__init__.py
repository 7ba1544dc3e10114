"""Launchers: where worker processes come from."""

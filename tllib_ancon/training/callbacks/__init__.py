"""Callbacks of the trainer, each in a file with its own state."""

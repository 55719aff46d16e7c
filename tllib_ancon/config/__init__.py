"""Settings: what one is, and those of every command."""

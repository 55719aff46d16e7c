"""Models that adapt to a stream: ``python -m benchmarks.streams``."""

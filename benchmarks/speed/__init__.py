"""What ``python -m benchmarks.speed`` measures: one file a measurement, each with ``measure(...) -> list[Row]``."""

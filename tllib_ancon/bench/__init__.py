"""What the command ``tllib-ancon bench`` measures: one file a measurement, each with ``measure(...) -> list[Row]``."""

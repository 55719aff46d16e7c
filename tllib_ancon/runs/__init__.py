"""The run directory: its settings, the state of an epoch, models, metrics, predictions and the result."""

"""A training step, by ``python -m benchmarks.speed``, and whole adaptations, by ``python -m benchmarks.speed.cost``."""

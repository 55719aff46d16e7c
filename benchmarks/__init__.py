"""The project's own experiments: ``python -m benchmarks.speed``, ``python -m benchmarks.theory``, and the commands
behind the tables of ``results/``. They run from a checkout and are no part of the package."""

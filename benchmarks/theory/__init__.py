"""The paper's theory put to the test: ``votes.py`` (Theorem 3.1) and ``linear_model.py`` (Theorem 3.2) compute what the
statements speak of, ``findings/`` tells which of them hold. ``python -m benchmarks.theory`` writes the table."""

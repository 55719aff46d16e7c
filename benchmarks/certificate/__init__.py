"""How often the certificate is false, and how many labels it takes, on simulated labels: ``python -m
benchmarks.certificate``."""

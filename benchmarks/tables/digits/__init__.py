"""MNIST ↔ USPS beside SHOT: ``to_tllib.py`` writes the images, ``mnist_usps.sh`` makes the runs."""

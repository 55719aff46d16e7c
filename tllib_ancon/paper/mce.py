"""The mean corruption error of ImageNet-C."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

ALEXNET_ERRORS = {
    "gaussian_noise": 88.6428,
    "shot_noise": 89.4468,
    "impulse_noise": 92.2640,
    "defocus_blur": 81.9880,
    "glass_blur": 82.6268,
    "motion_blur": 78.5948,
    "zoom_blur": 79.8360,
    "snow": 86.6816,
    "frost": 82.6572,
    "fog": 81.9324,
    "brightness": 56.4592,
    "contrast": 85.3204,
    "elastic_transform": 64.6056,
    "pixelate": 71.7840,
    "jpeg_compression": 60.6500,
}
"""AlexNet's error in percent, mean over the five severities: the numbers of Hendrycks and Dietterich, ICLR 2019
(github.com/hendrycks/robustness), as later code for ImageNet-C (AugMix) spells them."""


def mean_corruption_error(accuracies: Mapping[str, Mapping[int, float]]) -> float | None:
    r"""mCE :math:`= \frac{100}{15} \sum_c \sum_s E_{s,c} / \sum_s E^\text{AlexNet}_{s,c}`; lower is better.

    Args:
        accuracies: corruption -> severity -> accuracy in percent

    Returns: the mCE in percent, or None unless all 15 corruptions are there at all five severities

    Source: Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
    Perturbations", ICLR 2019, Section 4.
    """
    complete = all(set(accuracies.get(name, ())) >= {1, 2, 3, 4, 5} for name in ALEXNET_ERRORS)
    if not complete:
        return None
    return fmean(
        100 * fmean(100 - accuracies[name][severity] for severity in range(1, 6)) / error
        for name, error in ALEXNET_ERRORS.items()
    )

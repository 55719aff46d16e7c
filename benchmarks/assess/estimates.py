"""Two estimates of the accuracy from unlabelled images and the source's hold-out: ATC and DoC.

Accuracies are fractions in [0, 1]; logits are (N, K), labels (N,).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import entr, log_softmax, softmax

TEMPERATURES = (0.25, 20.0)
"""Range of the source's temperature: if all images are right, the likeliest temperature would be 0."""


@dataclass(frozen=True)
class Calibrated:
    """Outputs on labelled images of the source, divided by the likeliest temperature (Guo et al., ICML 2017)."""

    accuracy: float
    temperature: float
    confidence: float
    threshold: float

    @classmethod
    def on(cls, logits: ArrayLike, labels: ArrayLike) -> Calibrated:
        outputs, classes = np.asarray(logits, float), np.asarray(labels)

        def loss(log: float) -> float:
            return -float(log_softmax(outputs / math.exp(log), 1)[np.arange(len(classes)), classes].mean())

        bounds = tuple(map(math.log, TEMPERATURES))
        temperature = math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)
        accuracy, certain = float((outputs.argmax(1) == classes).mean()), certainty(outputs, temperature)
        threshold = float(np.append(np.sort(certain), 1)[round((1 - accuracy) * len(classes))])
        return cls(accuracy, temperature, confidence(outputs, temperature), threshold)

    def atc(self, logits: ArrayLike) -> float:
        r"""Average thresholded confidence: the fraction of images whose negative entropy is at least the threshold.

        The threshold is the one at which this fraction is the accuracy on the source. Source: Garg et al., "Leveraging
        Unlabeled Data to Predict Out-of-Distribution Performance", ICLR 2022 (arXiv 2201.04234).
        """
        return float((certainty(logits, self.temperature) >= self.threshold).mean())

    def doc(self, logits: ArrayLike) -> float:
        """Difference of confidences: the source's accuracy less the loss of mean confidence, in [0, 1].

        Source: Guillory et al., "Predicting with Confidence on Unseen Distributions", ICCV 2021, without regression.
        """
        return float(np.clip(self.accuracy - self.confidence + confidence(logits, self.temperature), 0, 1))


def certainty(logits: ArrayLike, temperature: float) -> NDArray[np.float64]:
    """Negative entropy of each image's probabilities, (N,), in nats."""
    found: NDArray[np.float64] = -entr(softmax(np.asarray(logits, float) / temperature, 1)).sum(1)
    return found


def confidence(logits: ArrayLike, temperature: float) -> float:
    return float(softmax(np.asarray(logits, float) / temperature, 1).max(1).mean())

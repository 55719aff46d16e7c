"""Records ``golden_naive.npz`` with the naive transcription: ``python -m tests.self_training.record_golden``."""

from __future__ import annotations

import numpy as np

from tests.self_training.naive import NaiveAnCon
from tests.self_training.test_anchored import CONVENTIONS, OWN_GOLDEN

NUM_SAMPLES, NUM_CLASSES, BATCH, STEPS = 40, 5, 10, 24


def record() -> None:
    generator = np.random.default_rng(0)
    indices = np.stack([generator.permutation(NUM_SAMPLES)[:BATCH] for _ in range(STEPS)])
    logits = (2.5 * generator.standard_normal((STEPS, BATCH, NUM_CLASSES))).astype(np.float32)
    recorded = {"num_samples": np.array(NUM_SAMPLES), "indices": indices, "logits": logits}
    for convention in CONVENTIONS:
        naive = NaiveAnCon(NUM_CLASSES, 0.3, 0.9, convention)
        targets, thresholds = [], []
        for step in range(STEPS):
            targets.append(naive.visit(indices[step].tolist(), logits[step].tolist()))
            thresholds.append(naive.threshold())
        recorded[f"{convention}_targets"] = np.array(targets)
        recorded[f"{convention}_threshold"] = np.array(thresholds)
    np.savez_compressed(OWN_GOLDEN, **recorded)


if __name__ == "__main__":
    record()

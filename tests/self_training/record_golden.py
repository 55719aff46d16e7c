"""Records ``golden_naive.npz`` with the naive transcription: ``python -m tests.self_training.record_golden``."""

from __future__ import annotations

import numpy as np

from tests.self_training.naive import NaiveAnCon, NaiveELR, cross_entropy
from tests.self_training.test_anchored import CONVENTIONS, OWN_GOLDEN

NUM_SAMPLES, NUM_CLASSES, BATCH, STEPS = 40, 5, 10, 24


def record() -> None:
    generator = np.random.default_rng(0)
    indices = np.stack([generator.permutation(NUM_SAMPLES)[:BATCH] for _ in range(STEPS)])
    logits = (2.5 * generator.standard_normal((STEPS, BATCH, NUM_CLASSES))).astype(np.float32)
    recorded = {"num_samples": np.array(NUM_SAMPLES), "indices": indices, "logits": logits}
    for convention in CONVENTIONS:
        naive = NaiveAnCon(NUM_CLASSES, 0.3, 0.9, convention)
        steps = [_step(naive, *visit) for visit in zip(indices.tolist(), logits.tolist(), strict=True)]
        recorded |= {f"{convention}_{name}": np.array([step[name] for step in steps]) for name in steps[0]}
    elr = NaiveELR(3.0, 0.9)
    losses, gradients = zip(*map(elr.visit, indices.tolist(), logits.tolist()), strict=True)
    recorded |= {"elr": np.array(losses), "elr_grad": np.array(gradients)}
    np.savez_compressed(OWN_GOLDEN, **recorded)


def _step(naive: NaiveAnCon, indices: list[int], logits: list[list[float]]) -> dict[str, object]:
    targets = naive.visit(indices, logits)
    loss, gradient = cross_entropy(logits, targets)
    votes = [naive.ensemble(index) for index in indices]
    return {"targets": targets, "threshold": naive.threshold(), "votes": votes, "ce": loss, "ce_grad": gradient}


if __name__ == "__main__":
    record()

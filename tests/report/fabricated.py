"""Run directories written by hand, for tests of what reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tllib_ancon.config import AdaptConfig, Config, PretrainConfig

VERSIONS = {"torch": "2.x", "device": "a machine"}


def write_run(
    out: Path,
    method: str,
    pair: str = "A-D",
    seed: int = 0,
    accuracies: tuple[float, ...] = (40.0, 50.0, 60.0),
    labelled: bool = True,
    votes: bool = False,
    **changed: Any,
) -> Path:
    """An adaptation in ``out/erm/pair/method-seed`` whose epochs have these accuracies; the last is selected. Where the
    target has no labels, they are not in the record; epochs have votes and δ where they are asked for."""
    source, _, target = pair.rpartition("-")
    run = (
        out / "erm" / pair.replace("/", "_") / f"{method}-seed{seed}{''.join(f',{k}={v}' for k, v in changed.items())}"
    )
    made_by = write_source(out, source or "clean", seed)
    config = AdaptConfig(
        root="ROOT",
        source=(source,) if source else (),
        target=(target,),
        method=method,
        seed=seed,
        checkpoint=str(made_by / "checkpoints/best.pth"),
        log=str(run),
    )
    metrics = [
        {
            "epoch": epoch,
            **(_scores(accuracy) if labelled else {}),
            **({"votes": 0.2 * epoch, "threshold": 0.4 * epoch} if votes and epoch else {}),
            "infomax": epoch,
            "corr_c": epoch,
            "mean_entropy": -epoch,
        }
        for epoch, accuracy in enumerate(accuracies)
    ]
    result = {
        "method": method,
        "criterion": "infomax",
        "start": metrics[0],
        "selected": metrics[-1],
        "last": metrics[-1],
    }
    _write(run, {"command": "adapt", **_config(config), **changed}, result)
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    return run


def _scores(accuracy: float) -> dict[str, Any]:
    return {
        "accuracy": accuracy,
        "ece": accuracy / 1000,
        "per_class_accuracy": [accuracy, accuracy + 2, None],
    }


def write_source(out: Path, source: str, seed: int, **changed: Any) -> Path:
    run = out / "source" / f"erm-{source}-seed{seed}"
    config = PretrainConfig(root="ROOT", source=(source,), seed=seed, log=str(run))
    _write(run, {"command": "pretrain", **_config(config), **changed}, {"selected": {"accuracy": 99.0}})
    return run


def write_predictions(run: Path, images: int = 60, classes: int = 3, **changed: np.ndarray) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(images) % classes
    logits = generator.normal(size=(images, classes)).astype(np.float32)
    logits[np.arange(images), labels] += 2
    votes = np.zeros((images, classes), np.uint16)
    votes[np.arange(images), labels] = generator.integers(0, 5, images)
    arrays = {"indices": np.arange(images), "logits": logits, "labels": labels, "features": logits.astype(np.float16)}
    np.savez(run / "predictions.npz", **{**arrays, "votes": votes, **changed})


def _config(config: Config) -> dict[str, Any]:
    return {**config.to_dict(), "versions": VERSIONS}


def _write(run: Path, config: dict[str, Any], result: dict[str, Any]) -> None:
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.json").write_text(json.dumps(config))
    (run / "result.json").write_text(json.dumps(result))

"""Run directories written by hand, for tests of what reads them."""

import json

import numpy as np
from torch import nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data.open import as_domain
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.laboratory.finished_runs import read_runs
from tllib_ancon.models.references import ModelRef
from tllib_ancon.opening.defaults import Facts, resolve

VERSIONS = {"torch": "2.x", "device": "a machine"}


def frame_of(folder):
    return read_runs([folder])[0]


def write_run(
    out,
    method,
    pair="A-D",
    seed=0,
    accuracies=(40.0, 50.0, 60.0),
    labelled=True,
    **changed,
):
    """An adaptation in ``out/erm/pair/method-seed`` whose epochs have these accuracies; the last is selected. Where the
    target has no labels, they are not in the record."""
    source, _, target = pair.rpartition("-")
    variant = "".join(f",{name}={value}" for name, value in changed.items())
    name = f"{method}-seed{seed}{variant}"
    run = out / "erm" / pair.replace("/", "_") / name
    settings = {"root": "ROOT", "source": (source,) if source else (), "target": (target,), "method": method}
    checkpoint = str(write_source(out, source or "clean", seed) / "checkpoints/best.pth")
    requested = AdaptConfig(**settings, seed=seed, checkpoint=checkpoint, log=str(run))
    images = as_domain(np.zeros((100, 8, 8, 3), np.uint8))
    config, _ = resolve(requested, Facts(ModelRef(), nn.Identity(), images, Preprocessing()))
    metrics = []
    for epoch, accuracy in enumerate(accuracies):
        scores = {"accuracy": accuracy, "mean_class_accuracy": accuracy + 1, "ece": accuracy / 1000}
        criteria = {"infomax": epoch, "corr_c": epoch, "mean_entropy": -epoch}
        metrics.append({"epoch": epoch, **(scores if labelled else {}), **criteria})
    models = {"start": metrics[0], "selected": metrics[-1], "last": metrics[-1]}
    result = {"method": method, "criterion": "infomax", "held_out": 0, **models}
    _write(run, "adapt", config, changed, result)
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    return run


def write_source(out, source, seed, **changed):
    run = out / "source" / f"erm-{source}-seed{seed}"
    config = PretrainConfig(root="ROOT", source=(source,), seed=seed, log=str(run))
    _write(run, "pretrain", config, changed, {"selected": {"accuracy": 99.0}})
    return run


def write_predictions(run):
    labels = np.arange(60) % 3
    logits = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    logits[np.arange(60), labels] += 2
    arrays = {"indices": np.arange(60), "logits": logits, "labels": labels, "features": logits.astype(np.float16)}
    np.savez(run / "predictions.npz", **arrays)


def _write(run, command, config, changed, result):
    run.mkdir(parents=True, exist_ok=True)
    content = {"command": command, **config.to_dict(), "versions": VERSIONS, **changed}
    (run / "config.json").write_text(json.dumps(content))
    (run / "result.json").write_text(json.dumps(result))

"""A run records what it is made of: versions, classes, digests of images and weights, the network, and predictions."""

import hashlib
import json
import platform
import shutil

import numpy as np
import torch
from torch.utils.data import TensorDataset

from tests.support import small
from tests.support.json_files import read_json, read_json_lines
from tests.support.small import IMAGES, network
from tllib_ancon.cli.main import main
from tllib_ancon.data.open import as_domain
from tllib_ancon.models.checkpoints import load_state_dict, sha256_of_tensors


def test_a_run_records_what_it_is_made_of(tmp_path):
    small.adapt(log=tmp_path / "run", epochs=1)
    record = read_json(tmp_path / "run" / "config.json")
    versions = record["versions"]
    assert " ".join(versions) == "tllib_ancon python torch torchvision timm pillow device"
    assert versions["python"] == platform.python_version()
    assert (record["command"], record["processes"], record["seed"]) == ("adapt", 1, 0)
    images = as_domain(TensorDataset(torch.randn(IMAGES, 3, 4, 4, generator=torch.Generator().manual_seed(0))))
    of_images = {"number": IMAGES, "sha256": images.with_labels(np.arange(IMAGES) % 3).fingerprint(), "skipped": []}
    assert record["inputs"] == {
        "classes": ["0", "1", "2"],
        "class_folders": {},
        "images": {"TensorDataset": of_images},
        "model": "Sequential",
        "weights_sha256": sha256_of_tensors(network().state_dict()),
    }
    module = "torch.nn.modules.container.Sequential"
    recipe = {"library": "python", "name": module, "head": "4", "output": None, "preprocessing": None}
    assert record["network"] == recipe
    epochs = read_json_lines(tmp_path / "run" / "metrics.jsonl")
    assert [epoch["epoch"] for epoch in epochs] == [0, 1]
    assert 0 < epochs[1]["threshold"] < 1
    with np.load(tmp_path / "run" / "predictions.npz") as arrays:
        shapes = {name: arrays[name].shape for name in arrays}
    assert shapes == {
        "indices": (IMAGES,),
        "labels": (IMAGES,),
        "logits": (IMAGES, 3),
        "features": (IMAGES, 6),
        "votes": (IMAGES, 3),
    }


def test_a_run_of_a_file_records_the_file_the_teacher_and_a_dropout(adapt, tmp_path, source_checkpoint):
    start = shutil.copytree(source_checkpoint.parents[1], tmp_path / "start")
    best = start / "checkpoints" / "best.pth"
    settings = read_json(start / "config.json")
    (start / "config.json").write_text(json.dumps({**settings, "bottleneck_dropout": 0.5}))
    assert main(adapt("run", "--epochs", "1", "--teacher", str(start), checkpoint=best)) == 0
    record = read_json(tmp_path / "run" / "config.json")
    inputs = record["inputs"]
    assert inputs["checkpoint_sha256"] == hashlib.sha256(best.read_bytes()).hexdigest()
    assert inputs["teacher_sha256"] == sha256_of_tensors(load_state_dict(best))
    assert record["bottleneck_dropout"] == 0.5
    assert "weights_sha256" not in inputs

"""A run records what it is made of: versions, classes, digests of images and weights, the network, and predictions."""

import platform

import numpy as np
import torch

from tests.support.json_files import read_json, read_json_lines
from tests.support.small import IMAGES, adapt, network


def test_a_run_records_what_it_is_made_of(tmp_path):
    adapt(log=tmp_path / "run", epochs=1)
    record = read_json(tmp_path / "run" / "config.json")
    versions = record["versions"]
    assert " ".join(versions) == "tllib_ancon python torch torchvision timm pillow device"
    assert versions["python"] == platform.python_version()
    assert record["command"] == "adapt"
    assert record["processes"] == 1
    assert record["seed"] == 0
    inputs = record["inputs"]
    assert inputs["classes"] == ["0", "1", "2"]
    (images,) = inputs["images"].values()
    assert images["number"] == IMAGES
    assert images["skipped"] == []
    assert record["network"]["head"] == "4"
    assert record["network"]["name"] == "torch.nn.modules.container.Sequential"
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


def test_digests_tell_other_images_and_other_weights_apart(tmp_path):
    def digests(name, model, images):
        adapt(model, images, log=tmp_path / name, epochs=1)
        inputs = read_json(tmp_path / name / "config.json")["inputs"]
        (of_images,) = inputs["images"].values()
        return of_images["sha256"], inputs["weights_sha256"]

    images = torch.zeros(8, 3, 4, 4)
    other_images = torch.ones(8, 3, 4, 4)
    other_network = network()
    torch.nn.init.zeros_(other_network[4].bias)
    first = digests("first", network(), images)
    of_other_images = digests("images", network(), other_images)
    of_other_weights = digests("weights", other_network, images)
    assert first[0] == of_other_weights[0]
    assert first[1] != of_other_weights[1]
    assert first[0] != of_other_images[0]
    assert first[1] == of_other_images[1]

"""A setting that the user leaves out has the default of these images, this network, this method and the source run."""

import json
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.networks import HALVES
from tests.support.refusals import REFUSED, one_line
from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data.open import as_domain
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.references import ModelRef
from tllib_ancon.opening.defaults import Facts, described, resolve
from tllib_ancon.opening.transforms import preprocessing_of_call

BATCH_NORM_NETWORK = nn.BatchNorm1d(2)
LAYER_NORM_NETWORK = nn.LayerNorm(2).requires_grad_(False)
USUAL_IMAGES = {
    "train_resizing": "default",
    "val_resizing": "default",
    "image_size": 224,
    "padding": 0,
    "no_hflip": False,
}
USUAL_TRAINING = {
    "adapted": "all-but-head",
    "batch_norm": "mixed",
    "batch_size": 64,
    "criterion": "last",
    "lr": 0.01,
    "mixed_precision": "no",
    "optimizer": "sgd",
    "views": 1,
}


def facts_about(
    network=BATCH_NORM_NETWORK, count=1000, side=None, preprocessing=MappingProxyType({}), fixed=False, run=None
):
    """Facts about a network that the caller passes, unless a run is named, and images that are squares if they have a
    side."""
    pixels = np.zeros((count, side or 1, side or 2, 3), np.uint8)
    if fixed:
        declared = preprocessing_of_call(np.asarray, np.asarray)
    else:
        declared = None if preprocessing is None else Preprocessing(**preprocessing)
    source = ModelRef(module=network) if run is None else ModelRef(**run)
    return Facts(source, network, as_domain(pixels), declared)


def filled_in(config, facts):
    """The settings that were left out, but for options of the method."""
    resolved, _ = resolve(config, facts)
    before = config.to_dict()
    return {name: value for name, value in resolved.to_dict().items() if value != before.get(name, value)}


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)


KNOWN = {"image_size": 96, "val_resizing": "keep-ratio"}
LEFT_OUT = json.loads((Path(__file__).parents[2] / "support" / "defaults.json").read_text())
"""Settings, facts about the images, and the usual defaults that they change."""


@pytest.mark.parametrize(("settings", "images", "changed"), LEFT_OUT)
def test_what_is_left_out_follows_the_method_and_the_images(settings, images, changed):
    expected = {**USUAL_IMAGES, **USUAL_TRAINING, **changed}
    values = filled_in(AdaptConfig(**{"data": "ImageList", **settings}), facts_about(**images))
    assert values == {name: value for name, value in expected.items() if value is not None}


@pytest.mark.parametrize("method", methods.names())
def test_resolved_settings_are_their_own_record(method):
    config, _ = resolve(AdaptConfig(method=method, epochs=3, scale=[0.2, 1], target=["D"], **HALVES), facts_about())
    recorded = json.loads(json.dumps(config.to_dict()))
    assert AdaptConfig(**recorded).to_dict() == config.to_dict()
    assert config.options == methods.all_options(method, {})


def test_a_network_without_batch_norm_learns_in_another_way():
    values = filled_in(AdaptConfig(data="ImageList"), facts_about(LAYER_NORM_NETWORK))
    expected = {**USUAL_IMAGES, **USUAL_TRAINING, "optimizer": "adamw", "lr": 0.0002, "adapted": "as-given"}
    assert values == expected
    both = nn.Sequential(nn.LayerNorm(2), BATCH_NORM_NETWORK)
    assert filled_in(AdaptConfig(data="ImageList"), facts_about(both)) == {**USUAL_IMAGES, **USUAL_TRAINING}


def test_half_precision_is_used_where_the_device_computes_in_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: not including_emulation)
    assert filled_in(AdaptConfig(data="ImageList"), facts_about())["mixed_precision"] == "bf16"


def test_a_source_model_is_trained_with_the_usual_network_and_images():
    usual = {"arch": "resnet18", "arch_option": [], "no_pool": False, "mixed_precision": "no", **USUAL_IMAGES}
    config = PretrainConfig(source=["A"], data="ImageList")
    run = {"checkpoint": "imagenet"}
    assert filled_in(config, facts_about(run=run)) == usual


def test_the_help_names_each_setting_that_a_model_images_or_the_machine_decide():
    _, layers = resolve(AdaptConfig(data="ImageList"), facts_about(preprocessing=KNOWN))
    decided = {name for name, layer in layers.items() if layer in ("source run", "model", "images", "machine")}
    assert decided <= described(AdaptConfig).keys()


def test_each_setting_has_its_layer():
    config = AdaptConfig(momentum=0.9, loss="belief-matching", norm_mean=(0.5,) * 3)
    run = {"checkpoint": "best.pth", "recorded_settings": {"crop_fraction": 0.5, "norm_mean": [0.1] * 3}}
    _, layers = resolve(config, facts_about(preprocessing=KNOWN, run=run))
    expected = {
        "momentum": "user",
        "loss": "user",
        "norm_mean": "user",
        "crop_fraction": "source run",
        "image_size": "model",
        "batch_size": "images",
        "views": "field",
        "batch_norm": "method",
        "smoothing": "method",
        "mixed_precision": "machine",
        "lr": "field",
        "weight_decay": "field",
    }
    assert {name: layers[name] for name in expected} == expected


@pytest.mark.parametrize(("recorded", "views"), [({"views": 2}, 2), ({}, 1), ({"views": 2, "no_hflip": True}, 1)])
def test_predictions_have_the_views_of_the_run(recorded, views):
    facts = facts_about(run={"checkpoint": "best.pth", "recorded_settings": recorded})
    config, layers = resolve(PredictConfig(data="ImageList"), facts)
    assert (config.views, layers["views"]) == (views, "source run")


@pytest.mark.parametrize(("settings", "facts", "message"), REFUSED["defaults"])
def test_settings_that_do_not_fit_together_are_one_line(settings, facts, message):
    with one_line(None) as error:
        resolve(AdaptConfig(**settings), facts_about(**facts))
    assert str(error.value) == message

"""A checkpoint of an ordinary classifier gives that classifier, whatever program or library saved it."""

import argparse
from collections import OrderedDict

import numpy as np
import pytest
import timm
import torch
from torchvision import models

from tests.support.checkpoints import network_of
from tests.support.killable import differences
from tests.support.refusals import one_line
from tllib_ancon.models.bottleneck import BottleneckClassifier, shot_classifier
from tllib_ancon.models.checkpoints import load_into
from tllib_ancon.models.classifier import as_classifier
from tllib_ancon.models.networks import _SmallCNN, create_backbone

K = 5

FAMILIES = {
    **{f"timm/test_{name}": {} for name in ("vit", "resnet", "convnext", "efficientnet")},
    "timm/swin_tiny_patch4_window7_224": {"depths": (1, 1, 1, 1), "img_size": 64, "window_size": 2},
    "timm/mobilenetv3_small_050": {},
    "timm/densenet121": {"block_config": (1, 1, 1, 1)},
}
HEADS = {
    "torchvision/resnet18": "fc",
    "torchvision/mobilenet_v3_small": "classifier.3",
    "torchvision/swin_t": "head",
}


def randomised(model):
    """With batch statistics of some images, and with weights of which none is zero."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor) * (0.5 if name.endswith("running_var") else 0.02))
    return model.eval()


def saved(content, folder, name="model.pth"):
    torch.save(content, folder / name)
    return folder / name


@pytest.mark.parametrize("name", [*FAMILIES, *HEADS])
def test_every_family_gives_its_own_features_and_logits_and_goes_back(name, tmp_path):
    library, _, family = name.partition("/")
    options = FAMILIES.get(name, {})
    create = timm.create_model if library == "timm" else models.get_model
    network = randomised(create(family, num_classes=K, **options))
    side = 160 if family == "test_vit" else 64
    images = torch.randn(2, 3, side, side)
    words = [f"{key}={value!r}" for key, value in options.items()]
    loaded = network_of(saved(network.state_dict(), tmp_path), name, arch_option=words)
    classifier = as_classifier(loaded, images).eval()
    with torch.no_grad():
        logits, features = classifier.predict(images)
        torch.testing.assert_close(logits, network(images), rtol=0, atol=1e-6)
    assert differences(classifier.state_dict(), network.state_dict()) == []
    assert classifier.features_dim == features.shape[1]
    if library == "torchvision":
        assert classifier.head_name == HEADS[name]
        assert classifier.preprocessing.mean == (0.485, 0.456, 0.406)
        return
    with torch.no_grad():
        expected = network.forward_head(network.forward_features(images), pre_logits=True)
    torch.testing.assert_close(features, expected, rtol=0, atol=1e-6)
    assert classifier.head is classifier.network.get_classifier()
    assert classifier.preprocessing.mean == network.pretrained_cfg["mean"]


def resnet(num_classes=K):
    torch.manual_seed(0)
    return randomised(timm.create_model("test_resnet", num_classes=num_classes))


def under(prefix, state):
    return {prefix + name: tensor for name, tensor in state.items()}


def averages(state):
    return {name: tensor + 1 if tensor.is_floating_point() else tensor for name, tensor in state.items()}


PROGRAMS = {
    "plain": lambda state: state,
    "DataParallel": lambda state: under("module.", state),
    "torch.compile": lambda state: under("_orig_mod.", state),
    "both": lambda state: under("_orig_mod.module.", state),
    "own module": lambda state: under("encoder.net.", state),
    "profiled": lambda state: {**state, "total_ops": torch.zeros(1), "layer1.total_params": torch.zeros(1)},
    "without counters": lambda state: {name: state[name] for name in state if "num_batches" not in name},
    "state_dict": lambda state: {"state_dict": under("module.", state), "epoch": 3, "arch": "resnet18"},
    "timm": lambda state: {
        "epoch": 2,
        "arch": "resnet18",
        "version": 2,
        "metric": 71.2,
        "optimizer": {"param_groups": []},
        "state_dict": averages(state),
        "state_dict_ema": state,
        "args": argparse.Namespace(model="resnet18", lr=0.1),
    },
    "timm without average": lambda state: {"state_dict": state, "state_dict_ema": None, "args": argparse.Namespace()},
    "torchvision": lambda state: {
        "model": averages(state),
        "model_ema": {"n_averaged": torch.tensor(3), **under("module.", state)},
        "args": argparse.Namespace(data_path="/x"),
    },
    "Lightning": lambda state: {
        "epoch": 1,
        "global_step": 10,
        "pytorch-lightning_version": "2.5.0",
        "optimizer_states": [],
        "state_dict": OrderedDict({**under("model.", state), "criterion.weight": torch.ones(K)}),
        "loops": {"fit_loop": {"state_dict": {}}},
        "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_score": torch.tensor(0.1)}},
    },
    "odd name": lambda state: {"student": state, "epoch": 3},
    "NumPy numbers": lambda state: {"state_dict": state, "best": np.float64(91.2), "step": np.int64(3)},
    "average of another name": lambda state: {"model": averages(state), "ema": state},
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_checkpoints_of_training_programs_are_read(program, tmp_path):
    network = resnet()
    images = torch.randn(2, 3, 64, 64)
    loaded = network_of(saved(PROGRAMS[program](network.state_dict()), tmp_path), "test_resnet").eval()
    with torch.no_grad():
        assert torch.equal(loaded(images), network(images))


def test_several_networks_in_one_file_are_named(tmp_path):
    state = resnet().state_dict()
    path = saved({**under("student.", state), **under("teacher.", averages(state))}, tmp_path)
    with one_line(r"several networks, 'student\.', 'teacher\.'; save one alone"):
        network_of(path, "test_resnet")


def test_the_number_of_classes_is_that_of_the_checkpoint(tmp_path):
    for name, network in (
        ("test_resnet", resnet(7)),
        ("torchvision/squeezenet1_1", models.squeezenet1_1(num_classes=7)),
    ):
        loaded = network_of(saved(network.state_dict(), tmp_path), name)
        assert loaded.eval()(torch.zeros(2, 3, 64, 64)).shape == (2, 7)
    shot = shot_classifier(create_backbone("small_cnn"), 7)
    classifier = network_of(saved(shot.state_dict(), tmp_path), "small_cnn")
    assert isinstance(classifier, BottleneckClassifier)
    assert classifier.num_classes == 7
    assert classifier.features_dim == 256
    assert classifier.preprocessing.mean == (0.5, 0.5, 0.5)


def test_what_does_not_fit_is_listed(tmp_path):
    path = saved(models.resnet18(num_classes=K).state_dict(), tmp_path)
    for arch, said in {
        "resnet34": r"taken for the weights of a resnet34.*layer1\.2\.conv1\.weight, .* of the network are missing",
        "small_cnn": r"layout of checkpoint .*model\.pth is unknown \(its tensors: conv1\.weight",
    }.items():
        with one_line(said):
            network_of(path, arch)
    state = _SmallCNN().state_dict()
    changed = {name: state[name] for name in state if name != "layers.0.weight"}
    changed |= {"extra": torch.zeros(1), "layers.3.weight": torch.zeros(1)}
    with one_line(
        r"layers.3.weight has shape \(1,\).*layers.0.weight of the network are missing; the file also holds extra"
    ):
        load_into(_SmallCNN(), changed, "file.pth")


def test_weights_of_other_precision_are_converted_and_whole_numbers_refused(tmp_path):
    state = resnet().state_dict()
    for kind in (torch.float16, torch.bfloat16, torch.float64):
        cast = {name: tensor.to(kind) if tensor.is_floating_point() else tensor for name, tensor in state.items()}
        loaded = network_of(saved(cast, tmp_path), "test_resnet")
        assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    for kind in (torch.int64, torch.bool, torch.uint16):
        path = saved({**state, "fc.weight": state["fc.weight"].to(kind)}, tmp_path)
        with one_line(rf"fc\.weight has type {kind}, the network torch\.float32"):
            network_of(path, "test_resnet")


# The classifier that a network was pre-trained as on ImageNet


@pytest.mark.parametrize(
    ("arch", "line"), [("resnt18", "did you mean 'resnet18'"), ("small_cnn", "small_cnn has no ImageNet classifier")]
)
def test_what_cannot_be_an_imagenet_start(arch, line):
    with one_line(line):
        network_of("imagenet", arch, scratch=True)


def test_bare_names_of_resnets_are_those_of_torchvision():
    for name, module in (("resnet18", "torchvision.models.resnet"), ("timm/resnet18", "timm.models.resnet")):
        network = network_of("imagenet", name, scratch=True)
        assert type(network).__module__ == module
        assert network.fc.out_features == 1000

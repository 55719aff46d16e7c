"""A checkpoint of an ordinary classifier gives that classifier, whatever program or library saved it."""

import argparse
from collections import OrderedDict

import pytest
import timm
import torch
from torchvision import models

from tests.support.checkpoints import network_of
from tests.support.killable import differences
from tests.support.refusals import one_line
from tllib_ancon.models.bottleneck import BottleneckClassifier, shot_classifier
from tllib_ancon.models.checkpoints import load_into
from tllib_ancon.models.networks import create_backbone

K = 5

FAMILIES = {
    **{f"timm/test_{name}": {} for name in ("vit", "convnext")},
    "timm/swin_tiny_patch4_window7_224": {"depths": (1, 1, 1, 1), "img_size": 64, "window_size": 2},
    **{f"torchvision/{name}": {} for name in ("resnet18", "squeezenet1_1")},
}


def randomised(model):
    """With batch statistics of some images, and with weights of which none is zero."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor) * (0.5 if name.endswith("running_var") else 0.02))
    return model.eval()


def saved(content, folder):
    torch.save(content, folder / "model.pth")
    return folder / "model.pth"


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_gives_its_own_logits_and_as_many_classes(name, tmp_path):
    library, _, family = name.partition("/")
    options = FAMILIES[name]
    create = timm.create_model if library == "timm" else models.get_model
    network = randomised(create(family, num_classes=K, **options))
    side = 160 if family == "test_vit" else 64
    images = torch.randn(2, 3, side, side)
    words = [f"{key}={value!r}" for key, value in options.items()]
    loaded = network_of(saved(network.state_dict(), tmp_path), name, arch_option=words).eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded(images), network(images), rtol=0, atol=1e-6)
    assert differences(loaded.state_dict(), network.state_dict()) == []


def resnet():
    torch.manual_seed(0)
    return randomised(timm.create_model("test_resnet", num_classes=K))


def under(prefix, state):
    return {prefix + name: tensor for name, tensor in state.items()}


def averages(state):
    return {name: tensor + 1 if tensor.is_floating_point() else tensor for name, tensor in state.items()}


PROGRAMS = {
    "torch.compile of DataParallel": lambda state: under("_orig_mod.module.", state),
    "own module": lambda state: under("encoder.net.", state),
    "profiled": lambda state: {**state, "total_ops": torch.zeros(1), "layer1.total_params": torch.zeros(1)},
    "without counters": lambda state: {name: state[name] for name in state if "num_batches" not in name},
    "timm": lambda state: {
        "arch": "resnet18",
        "optimizer": {"param_groups": []},
        "state_dict": state,
        "state_dict_ema": None,
        "args": argparse.Namespace(model="resnet18", lr=0.1),
    },
    "average of torchvision": lambda state: {"n_averaged": torch.tensor(3), **under("module.", state)},
    "Lightning": lambda state: {
        "pytorch-lightning_version": "2.5.0",
        "state_dict": OrderedDict({**under("model.", state), "criterion.weight": torch.ones(K)}),
        "loops": {"fit_loop": {"state_dict": {}}},
    },
    "odd name": lambda state: {"student": state, "epoch": 3},
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_checkpoints_of_training_programs_are_read(program, tmp_path):
    network = resnet()
    images = torch.randn(2, 3, 64, 64)
    loaded = network_of(saved(PROGRAMS[program](network.state_dict()), tmp_path), "test_resnet").eval()
    with torch.no_grad():
        assert torch.equal(loaded(images), network(images))


def test_none_of_several_networks_in_one_file_is_taken(tmp_path):
    state = resnet().state_dict()
    path = saved({**under("student.", state), **under("teacher.", averages(state))}, tmp_path)
    with one_line(r"does not fit the network: .* are missing; the file also holds student\."):
        network_of(path, "test_resnet")


def test_the_classifier_of_a_run_has_the_classes_and_the_preprocessing_of_its_checkpoint(tmp_path):
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
        "small_cnn": "small_cnn is a backbone without a classifier .*give a `checkpoint` of TLLib's scripts",
    }.items():
        with one_line(said):
            network_of(path, arch)
    state = {"0.weight": torch.zeros(1), "extra": torch.zeros(1)}
    with one_line(r"0.weight is torch.float32 \(1,\), not .*; 0.bias of the network are missing; .* also holds extra"):
        load_into(torch.nn.Sequential(torch.nn.Linear(2, 3)), state, "file.pth")


def test_weights_of_other_precision_are_converted_and_whole_numbers_refused(tmp_path):
    state = resnet().state_dict()
    cast = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    loaded = network_of(saved(cast, tmp_path), "test_resnet")
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    path = saved({**state, "fc.weight": state["fc.weight"].long()}, tmp_path)
    with one_line(r"fc\.weight is torch.int64 .*, not torch\.float32"):
        network_of(path, "test_resnet")


def test_bare_names_of_resnets_are_those_of_torchvision():
    for name, module in (("resnet18", "torchvision.models.resnet"), ("timm/resnet18", "timm.models.resnet")):
        assert type(network_of("imagenet", name, scratch=True)).__module__ == module

"""A network is built by its name with its library's preprocessing; SHOT's layers are the published ones."""

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn
from torchvision import models

from tests.support.checkpoints import network_of
from tests.support.refusals import REFUSED, one_line
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.bottleneck import shot_classifier
from tllib_ancon.models.networks import create_backbone, create_network, parse_options
from tllib_ancon.models.preprocessing import preprocessing_of
from tllib_ancon.models.recipes import OWN, build, recipe_of
from tllib_ancon.models.references.run import Run

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
DIGITS = torch.randn(8, 1, 28, 28, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def lenet():
    torch.manual_seed(0)
    return shot_classifier(create_backbone("shot_lenet"), 10, dropout=0.5)


# Digits


def test_shots_lenet_gives_800_features_in_the_published_order(lenet):
    """Convolution, pooling, ReLU; convolution, dropout, pooling, ReLU."""
    functional = nn.functional
    first, second = (layer for layer in lenet.backbone.layers if isinstance(layer, nn.Conv2d))
    maps = functional.max_pool2d(functional.conv2d(DIGITS, first.weight, first.bias), 2).relu()
    maps = functional.max_pool2d(functional.conv2d(maps, second.weight, second.bias), 2).relu()
    features = lenet.eval().backbone(DIGITS)
    assert features.shape == (8, 800)
    torch.testing.assert_close(features, maps.reshape(len(DIGITS), -1))
    lengths = lenet.head.parametrizations.weight.original0
    torch.testing.assert_close(lenet.head.weight.norm(dim=1), lengths[:, 0])
    assert [type(layer) for layer in lenet.bottleneck] == [nn.Linear, nn.BatchNorm1d, nn.Dropout]


def test_a_checkpoint_is_loaded_with_its_dropout(lenet, tmp_path):
    torch.save(lenet.state_dict(), tmp_path / "model.pth")
    usual = {"arch_option": (), "no_pool": False, "scratch": False}
    run = Run(str(tmp_path / "model.pth"), recorded_settings={"bottleneck_dropout": 0.3})
    loaded = run.network({"arch": "shot_lenet", **usual})
    assert loaded.bottleneck[-1].p == 0.3
    assert set(loaded.state_dict()) == set(lenet.state_dict())
    assert torch.equal(loaded.eval()(DIGITS), lenet.eval()(DIGITS))
    assert len(network_of(tmp_path / "model.pth", "shot_lenet").bottleneck) == 2


# Networks by name


def test_preprocessing_is_that_of_the_networks_library():
    vit = create_network("test_vit")
    assert preprocessing_of(vit) == Preprocessing((0.5,) * 3, (0.5,) * 3, 160, 0.95)
    assert preprocessing_of(create_network("test_vit", options={"img_size": 64})).image_size == 64
    imagenet = Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 224)
    assert preprocessing_of(create_network("torchvision/resnet18")) == imagenet
    assert preprocessing_of(nn.Flatten()) is None
    backbone = create_backbone("small_cnn")
    assert shot_classifier(backbone, 3, 8).preprocessing == Preprocessing((0.5,) * 3, (0.5,) * 3)


def test_options_are_python_values_and_reach_the_builder():
    parsed = parse_options(["pad_type=same", "drop_rate=0.1", "scales=(1, 2)"])
    assert parsed == {"pad_type": "same", "drop_rate": 0.1, "scales": (1, 2)}
    backbone = create_backbone("mobilenetv2_100", pretrained=False, options={"pad_type": "same"})
    assert "Same" in type(backbone.conv_stem).__name__
    googlenet = create_backbone("torchvision/googlenet", pretrained=False, options={"transform_input": True})
    assert googlenet.transform_input
    assert googlenet.aux1 is None  # else it returns a tuple in training mode
    with one_line("KEY=VALUE"):
        parse_options(["same"])


def test_local_weights_need_no_classifier(tmp_path):
    full = create_backbone("test_resnet", pretrained=False)
    weights = {**full.state_dict(), "head.fc.weight": torch.zeros(1000, 3)}
    save_file(weights, tmp_path / "weights.safetensors")
    backbone = create_backbone("test_resnet", weights_file=tmp_path / "weights.safetensors")
    assert backbone.pretrained
    assert all(torch.equal(tensor, weights[name]) for name, tensor in backbone.state_dict().items())


@pytest.mark.parametrize(("name", "options", "said"), REFUSED["networks"])
def test_what_cannot_be_built_is_named(name, options, said):
    with one_line(said):
        create_backbone(name, pretrained=False, options=options)


TIMM = [
    ("test_resnet", {"global_pool": "max", "drop_rate": 0.2}),
    ("test_vit", {"img_size": 32, "patch_size": 8, "depth": 2, "global_pool": "avg", "drop_path_rate": 0.1}),
]


@pytest.mark.parametrize(("name", "options"), TIMM)
def test_a_network_of_timm_is_built_again_with_its_options(name, options):
    network = timm.create_model(name, num_classes=4, **options).eval()
    recipe = recipe_of(network, 4)
    assert recipe["library"] == "timm"
    assert recipe["name"] == name
    twin = build(recipe).eval()
    twin.load_state_dict(network.state_dict())
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(twin(images), network(images))


@pytest.mark.parametrize("name", ["resnet18", "googlenet"])
def test_a_network_of_torchvision_is_known_by_its_layers(name):
    network = models.get_model(name, num_classes=4, weights=None)
    recipe = recipe_of(network, 4)
    assert recipe["library"] == "torchvision"
    assert recipe["name"] == name
    build(recipe).load_state_dict(network.state_dict())


def test_a_changed_network_of_a_library_is_not_built_again():
    for network in (models.resnet18(num_classes=4), timm.create_model("test_resnet", num_classes=4)):
        network.maxpool = nn.AvgPool2d(3, 2, 1)
        assert recipe_of(network, 4)["library"] == OWN

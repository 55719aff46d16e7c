from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tllib_ancon.errors import UserError
from tllib_ancon.models.backbones import SmallCNN, create_backbone
from tllib_ancon.models.classifier import Classifier, adaptation_mode, shot_classifier
from tllib_ancon.models.networks import names, parse_options
from tllib_ancon.models.parameters import choose_adapted_parameters
from tllib_ancon.models.state_dicts import load_into

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model() -> Classifier:
    torch.manual_seed(0)
    return shot_classifier(SmallCNN(), num_classes=5, bottleneck_dim=16)


def test_predict_gives_logits_and_features_in_any_mode(model: Classifier) -> None:
    for mode in (True, False):
        logits, features = model.train(mode).predict(IMAGES)
        assert (logits.shape, features.shape) == ((4, 5), (4, 16))
    assert model.features_dim == 16


def test_calling_the_model_answers_as_tllib_does(model: Classifier) -> None:
    assert len(model.train()(IMAGES)) == 2
    assert model.eval()(IMAGES).shape == (4, 5)


def test_head_is_weight_normalised_and_bottleneck_has_no_relu(model: Classifier) -> None:
    torch.testing.assert_close(model.head.weight.norm(dim=1), model.head.parametrizations.weight.original0[:, 0])
    assert [type(layer) for layer in model.bottleneck] == [nn.Linear, nn.BatchNorm1d]
    assert (model.eval().predict(IMAGES)[1] < 0).any()


def test_model_can_be_copied(model: Classifier) -> None:
    twin = copy.deepcopy(model.eval())
    assert torch.equal(twin(IMAGES), model(IMAGES))


@pytest.mark.parametrize(("finetune", "backbone_rate"), [(True, 0.001), (False, 0.01)])
def test_rates_of_tllib(model: Classifier, finetune: bool, backbone_rate: float) -> None:
    model.finetune = finetune
    assert [group["lr"] for group in model.get_parameters(0.01)] == pytest.approx([backbone_rate, 0.01, 0.01])


@pytest.mark.parametrize(
    ("which", "learning"),
    [
        ("all", {"backbone", "bottleneck", "head"}),
        ("all-but-head", {"backbone", "bottleneck"}),
        ("norm-affine", {"backbone", "bottleneck"}),
    ],
)
def test_adapted_parameters(model: Classifier, which: str, learning: set[str]) -> None:
    choose_adapted_parameters(model, which)
    chosen = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {name.split(".")[0] for name in chosen} == learning
    if which == "norm-affine":
        assert all(
            model.get_submodule(name.rsplit(".", 1)[0]).__class__.__name__.startswith("Batch") for name in chosen
        )
    assert sum(len(group["params"]) for group in model.get_parameters()) == len(chosen)


def test_unknown_choice_of_parameters(model: Classifier) -> None:
    with pytest.raises(UserError, match="did you mean 'norm-affine'"):
        choose_adapted_parameters(model, "norm_affine")


@pytest.mark.parametrize("dropout", [False, True])
def test_adaptation_mode_keeps_batch_statistics_and_drops_dropout(dropout: bool) -> None:
    from timm.layers import DropPath
    from torchvision.ops import StochasticDepth

    model = nn.Sequential(
        nn.BatchNorm1d(2), nn.Dropout(0.5), DropPath(0.5), StochasticDepth(0.5, "row"), nn.Dropout2d()
    )
    adaptation_mode(model.eval(), dropout)
    assert [module.training for module in model] == [True, dropout, dropout, dropout, dropout]


@pytest.mark.parametrize(
    ("name", "options", "side"),
    [("mobilenetv2_100", {"drop_rate": 0.5}, 64), ("test_vit", {"attn_drop_rate": 0.5, "patch_drop_rate": 0.5}, 160)],
)
def test_dropout_inside_a_network_is_off_too(name: str, options: dict[str, float], side: int) -> None:
    backbone = create_backbone(name, pretrained=False, options=options)
    model = adaptation_mode(shot_classifier(backbone.network, 3, 8, backbone.pool_layer()))
    images = torch.randn(4, 3, side, side)
    (first, _), (second, _) = model(images), model(images)
    assert torch.equal(first, second)


def test_backbones_know_their_normalisation() -> None:
    assert create_backbone("resnet18", pretrained=False).preprocessing.mean == (0.485, 0.456, 0.406)
    vit = create_backbone("test_vit", pretrained=False)
    assert vit.preprocessing.mean == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("name", ["small_cnn", "resnet18", "test_resnet", "test_vit"])
def test_backbones_become_classifiers(name: str) -> None:
    backbone = create_backbone(name, pretrained=False)
    model = shot_classifier(backbone.network, 3, 8, backbone.pool_layer()).eval()
    size = 160 if name == "test_vit" else 64
    assert model(torch.zeros(2, 3, size, size)).shape == (2, 3)


def test_architecture_options_reach_timm() -> None:
    backbone = create_backbone("mobilenetv2_100", pretrained=False, options=parse_options(["pad_type=same"]))
    assert "Same" in type(backbone.network.conv_stem).__name__


def test_options_are_parsed_as_python_values() -> None:
    assert parse_options(["pad_type=same", "drop_rate=0.1", "scales=(1, 2)"]) == {
        "pad_type": "same",
        "drop_rate": 0.1,
        "scales": (1, 2),
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "resnet51"}, "did you mean"),
        ({"name": "mobilenetv2_100", "options": {"paddd": 1}}, "does not accept"),
        ({"name": "small_cnn", "options": {"pad_type": "same"}}, "small_cnn takes none"),
        ({"name": "small_cnn", "weights_file": "none.pth"}, "none.pth"),
    ],
)
def test_what_cannot_be_built_is_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        create_backbone(**{"pretrained": False, **arguments})


def test_malformed_option() -> None:
    with pytest.raises(UserError, match="KEY=VALUE"):
        parse_options(["same"])


def test_local_weights_need_no_classifier(tmp_path) -> None:
    from safetensors.torch import save_file

    full = create_backbone("test_resnet", pretrained=False).network
    weights = {**full.state_dict(), "head.fc.weight": torch.zeros(1000, 3)}
    save_file(weights, tmp_path / "weights.safetensors")
    backbone = create_backbone("test_resnet", weights_file=tmp_path / "weights.safetensors")
    assert backbone.pretrained
    for name, tensor in backbone.network.state_dict().items():
        assert torch.equal(tensor, weights[name])


def test_weights_that_do_not_fit_are_listed() -> None:
    state = SmallCNN().state_dict()
    state["extra"] = torch.zeros(1)
    del state["layers.0.weight"]
    state["layers.3.weight"] = torch.zeros(1)
    with pytest.raises(
        UserError, match=r"layers.0.weight is missing; extra is not part.*layers.3.weight has shape \(1,\)"
    ):
        load_into(SmallCNN(), state, "file.pth")


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_resnets_are_those_of_torchvision_as_in_tllib(name: str) -> None:
    assert type(create_backbone(name, pretrained=False).network).__module__ == "torchvision.models.resnet"


def test_names_hold_every_source() -> None:
    assert {"small_cnn", "lenet", "resnet50", "mobilenetv2_100"} <= set(names())

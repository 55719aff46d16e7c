from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tllib_ancon.errors import UserError
from tllib_ancon.models.checkpoints import recognize, start_model
from tllib_ancon.models.classifier import Classifier, shot_classifier
from tllib_ancon.models.state_dicts import load_state_dict
from tllib_ancon.pooling import AveragePool
from tllib_ancon.toolkit import find
from tllib_ancon.toolkit.binding import INSTALL, is_installed

K = 7
requires_tllib = pytest.mark.skipif(not is_installed("tllib"), reason=f"tllib is not installed: {INSTALL['tllib']}")


class Backbone(nn.Module):
    """A map of features, as TLLib's ResNets return; ``classifier`` adds the ImageNet classifier they keep."""

    out_features = 12

    def __init__(self, classifier: bool = False):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.ReLU())
        if classifier:
            self.fc = nn.Linear(12, 1000)

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def randomise(model: nn.Module) -> nn.Module:
    """Give every tensor a value that a mistake would show, batch-norm statistics included."""
    generator = torch.Generator().manual_seed(1)
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            values = torch.rand(tensor.shape, generator=generator)
            tensor.copy_(values + 0.1 if tensor.ndim < 2 else (values - 0.4) * 4 / tensor[0].numel() ** 0.5)
    return model.eval()


def images() -> Tensor:
    return torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(2))


def start(state: Mapping[str, Tensor], backbone: nn.Module, num_classes: int | None = K, **options: bool) -> Classifier:
    layout = recognize(state)
    assert layout is not None
    return start_model(layout, backbone, num_classes, **options)


def logits_of(model: Classifier) -> Tensor:
    with torch.no_grad():
        return model.eval()(images())


def logits_after_saving(state: object, folder: Path, **options: bool) -> Tensor:
    torch.save(state, folder / "latest.pth")
    return logits_of(start(load_state_dict(folder / "latest.pth"), Backbone(), **options))


# One test per layout


def tllib_classifier(module: str, **options: int) -> nn.Module:
    from importlib import import_module

    return import_module(module).ImageClassifier(Backbone(classifier=True), K, **options)


def dalib_classifier(module: str, **options: int) -> nn.Module:
    """dalib's backbones pool."""
    from importlib import import_module

    find("dalib")
    pooled = nn.Sequential(OrderedDict(layers=Backbone().layers, pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten()))
    pooled.out_features = 12
    return import_module(f"dalib.adaptation.{module}").ImageClassifier(pooled, K, **options)


def first(output: object) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


@requires_tllib
@pytest.mark.parametrize(
    ("module", "options"),
    [
        ("tllib.alignment.cdan", {"bottleneck_dim": 9}),
        ("tllib.alignment.dann", {"bottleneck_dim": 9}),
        ("tllib.self_training.mcc", {"bottleneck_dim": 9}),
        ("tllib.alignment.bsp", {"bottleneck_dim": 9}),
        ("tllib.alignment.adda", {"bottleneck_dim": 9}),
        ("tllib.self_training.self_ensemble", {"bottleneck_dim": 9}),
        ("tllib.alignment.jan", {"bottleneck_dim": 9}),
        ("tllib.alignment.dan", {"bottleneck_dim": 9}),
        ("tllib.alignment.mdd", {"bottleneck_dim": 9, "width": 11}),
        ("tllib.normalization.afn", {"bottleneck_dim": 9}),
        ("tllib.normalization.afn", {"bottleneck_dim": 9, "num_blocks": 3}),
        ("tllib.modules.classifier", {}),  # erm
    ],
)
def test_a_model_of_tllib_gives_the_same_logits(module, options, tmp_path):
    find("tllib")
    model = randomise(tllib_classifier(module, **options))
    with torch.no_grad():
        expected = model(images())
    assert (logits_after_saving(model.state_dict(), tmp_path) - expected).abs().max() == 0


@requires_tllib
def test_a_model_of_tllibs_fixmatch_gives_the_same_logits(tmp_path):
    """Its classifier is defined in the script: cdan's layers, initialised differently."""
    find("tllib")
    from tllib.modules.classifier import Classifier as TllibClassifier

    bottleneck = nn.Sequential(nn.Linear(12, 9), nn.BatchNorm1d(9), nn.ReLU())
    model = randomise(TllibClassifier(Backbone(classifier=True), K, bottleneck, 9))
    with torch.no_grad():
        expected = model(images())
    assert (logits_after_saving(model.state_dict(), tmp_path) - expected).abs().max() == 0


@requires_tllib
def test_the_first_of_tllibs_mcd_classifiers_gives_the_same_logits(tmp_path):
    find("tllib")
    from tllib.alignment.mcd import ImageClassifierHead

    parts = {
        "G": Backbone(classifier=True),
        "F1": ImageClassifierHead(12, K, 9),
        "F2": ImageClassifierHead(12, K, 9),
    }
    model = randomise(nn.ModuleDict(parts))
    with torch.no_grad():
        expected = model["F1"](model["G"](images()))
    state = {name: part.state_dict() for name, part in parts.items()}
    assert (logits_after_saving(state, tmp_path) - expected).abs().max() == 0


@pytest.mark.parametrize(
    ("module", "options"),
    [
        ("cdan", {"bottleneck_dim": 9}),
        ("dann", {"bottleneck_dim": 9}),
        ("jan", {"bottleneck_dim": 9}),
        ("dan", {"bottleneck_dim": 9}),
        ("mdd", {"bottleneck_dim": 9, "width": 11}),
    ],
)
def test_a_model_of_dalib_gives_the_same_logits(module, options, tmp_path):
    model = randomise(dalib_classifier(module, **options))
    with torch.no_grad():
        expected = first(model(images()))
    assert (logits_after_saving(model.state_dict(), tmp_path) - expected).abs().max() == 0


def test_dalibs_mcd_gives_the_same_logits(tmp_path):
    find("dalib")
    from dalib.adaptation.mcd import ImageClassifierHead

    parts = {"G": Backbone(), "F1": ImageClassifierHead(12, K, 9), "F2": ImageClassifierHead(12, K, 9)}
    model = randomise(nn.ModuleDict(parts))
    with torch.no_grad():
        expected = model["F1"](AveragePool()(model["G"](images())))
    state = {name: part.state_dict() for name, part in parts.items()}
    assert (logits_after_saving(state, tmp_path) - expected).abs().max() == 0


class AuthorsClassifier(nn.Module):
    """The keys and the arithmetic of the authors' SourceFreeClassifier."""

    def __init__(self, bottleneck: bool = True):
        super().__init__()
        width = 9 if bottleneck else 12
        self.backbone = Backbone(classifier=True)
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head_fc = nn.Linear(12, 9) if bottleneck else nn.Identity()
        self.head_bn = nn.BatchNorm1d(9) if bottleneck else nn.Identity()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            self.fc_final = nn.utils.weight_norm(nn.Linear(width, K))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc_final(self.head_bn(self.head_fc(self.pool(self.backbone(x)))))


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("bottleneck", [True, False])
def test_a_model_of_the_authors_gives_the_same_logits(prefix, bottleneck, tmp_path):
    model = randomise(AuthorsClassifier(bottleneck))
    with torch.no_grad():
        expected = model(images())
    state = {prefix + name: tensor for name, tensor in model.state_dict().items()}
    assert {"fc_final.weight_g", "fc_final.weight_v"} <= set(model.state_dict())
    assert (logits_after_saving(state, tmp_path) - expected).abs().max() == 0


@pytest.mark.parametrize("file", ["latest.pth", "latest.safetensors"])
def test_our_own_model_gives_the_same_logits(file, tmp_path):
    model = randomise(shot_classifier(Backbone(), K, 9))
    with torch.no_grad():
        expected = model(images())
    save = save_file if file.endswith("safetensors") else torch.save
    save(model.state_dict(), tmp_path / file)
    assert (logits_of(start(load_state_dict(tmp_path / file), Backbone())) - expected).abs().max() == 0


def states() -> dict[str, dict[str, Tensor]]:
    """A checkpoint of each layout, by this package's names of its parts."""
    mcd = {
        "G": Backbone(),
        "F1": nn.ModuleDict({"head": mcd_head()}),
        "F2": nn.ModuleDict({"head": mcd_head()}),
    }
    backbone = {"backbone": Backbone()}
    models = {
        "erm": {**backbone, "head": nn.Linear(12, K)},
        "cdan": {**backbone, "bottleneck": block(), "head": nn.Linear(9, K)},
        "dan": {
            **backbone,
            "bottleneck": nn.Sequential(nn.Linear(12, 9), nn.ReLU()),
            "head": nn.Linear(9, K),
        },
        "mdd": {
            **backbone,
            "bottleneck": nn.Sequential(nn.Identity(), *block(), nn.Dropout()),
            "head": two_layers(),
            "adv_head": two_layers(),
        },
        "mdd of dalib": {**backbone, "bottleneck": block(), "head": two_layers(), "adv_head": two_layers()},
        "mcd": mcd,
    }
    models = {name: randomise(nn.ModuleDict(parts)) for name, parts in models.items()}
    models["shot"] = randomise(shot_classifier(Backbone(), K, 9))
    models["shot without bottleneck"] = randomise(AuthorsClassifier(bottleneck=False))
    return {name: model.state_dict() for name, model in models.items()}


def block() -> nn.Sequential:
    return nn.Sequential(nn.Linear(12, 9), nn.BatchNorm1d(9), nn.ReLU())


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(9, 11), nn.ReLU(), nn.Dropout(), nn.Linear(11, K))


def mcd_head() -> nn.Sequential:
    second = nn.Linear(9, 9), nn.BatchNorm1d(9), nn.ReLU()
    return nn.Sequential(nn.Dropout(), *block(), nn.Dropout(), *second, nn.Linear(9, K))


@pytest.mark.parametrize("layout", states())
def test_layout_classes_and_dimensions_are_recognised(layout):
    found = recognize(states()[layout])
    features = 12 if layout in ("erm", "shot without bottleneck") else 9
    assert (found.name, found.num_classes, found.features_dim) == (layout, K, features)


@pytest.mark.parametrize("layout", states())
def test_an_adapted_model_of_any_layout_can_be_read_again(layout, tmp_path):
    adapted = start(states()[layout], Backbone())
    randomise(adapted)
    with torch.no_grad():
        expected, features = adapted.predict(images())
    assert features.shape[1] == adapted.features_dim
    assert (logits_after_saving(adapted.state_dict(), tmp_path) - expected).abs().max() == 0


def test_dropout_comes_back_where_the_layout_tells_that_it_was_there():
    def dropouts(layout: str) -> int:
        return sum(isinstance(layer, nn.Dropout) for layer in start(states()[layout], Backbone()).modules())

    assert {layout: dropouts(layout) for layout in ("cdan", "dan", "mdd", "mcd", "shot")} == {
        "cdan": 0,
        "dan": 1,
        "mdd": 2,
        "mcd": 2,
        "shot": 0,
    }


# Backbones


@pytest.mark.parametrize("name", ["dalib", pytest.param("tllib", marks=requires_tllib)])
def test_a_toolkits_resnet_starts_any_of_ours(name, tmp_path):
    """TLLib keeps ``backbone.fc``, dalib deletes it, torchvision's network has pooling and no ``fc``."""
    from torchvision.models import resnet18

    toolkit = find(name)
    model = randomise(toolkit.image_classifier(toolkit.create_backbone("resnet18"), K, 9))
    torch.save(model.state_dict(), tmp_path / "latest.pth")
    network = resnet18()
    network.fc = nn.Identity()
    batch = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = model(batch)
        for backbone in (
            network,
            toolkit.create_backbone("resnet18"),
            find("dalib").create_backbone("resnet18"),
        ):
            restored = start(load_state_dict(tmp_path / "latest.pth"), backbone).eval()
            assert (restored(batch) - expected).abs().max() == 0


@requires_tllib
@pytest.mark.parametrize(("name", "shape"), [("lenet", (2, 1, 28, 28)), ("dtn", (2, 3, 32, 32))])
def test_a_digit_network_is_not_pooled(name, shape):
    toolkit = find("tllib")
    model = randomise(toolkit.mdd_classifier(toolkit.create_backbone(name), 10, 9, 11))
    batch = torch.randn(shape)
    restored = start(model.state_dict(), toolkit.create_backbone(name), 10, pool=False).eval()
    with torch.no_grad():
        assert (restored(batch) - model(batch)).abs().max() == 0


def test_the_backbones_own_classifier_stays():
    backbone = Backbone(classifier=True)
    before = backbone.fc.weight.clone()
    state = {**states()["cdan"], "backbone.fc.weight": torch.zeros(5, 12), "backbone.fc.bias": torch.zeros(5)}
    start(state, backbone)
    assert torch.equal(backbone.fc.weight, before)


def test_counters_of_batches_may_be_missing():
    state = {name: tensor for name, tensor in states()["cdan"].items() if "num_batches" not in name}
    start(state, Backbone())


def test_other_missing_and_unexpected_tensors_are_listed():
    state = states()["cdan"]
    state["backbone.layers.7.weight"] = torch.zeros(1)
    del state["backbone.layers.0.bias"]
    with pytest.raises(UserError, match=r"backbone does not fit.*layers\.0\.bias is missing.*layers\.7\.weight"):
        start(state, Backbone())


def test_tensors_of_another_shape_are_listed_with_both_shapes():
    state = states()["cdan"]
    state["backbone.layers.0.weight"] = torch.zeros(12, 3, 5, 5)
    with pytest.raises(UserError, match=r"layers\.0\.weight has shape \(12, 3, 5, 5\).*\(12, 3, 3, 3\)"):
        start(state, Backbone())


def test_a_head_that_does_not_fit_the_bottleneck():
    state = states()["cdan"]
    state["head.weight"] = torch.zeros(K, 10)
    with pytest.raises(UserError, match=r"head does not fit.*\(7, 10\).*\(7, 9\)"):
        start(state, Backbone())


def test_another_number_of_classes():
    with pytest.raises(
        UserError, match=r"for 7 classes, the dataset has 65 \(head\.\S+ has shape \(7, \d+\), expected \(65, \d+\)\)"
    ):
        start(states()["mdd"], Backbone(), 65)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update({"decoder.weight": torch.zeros(3)}),
        lambda state: state.update({"bottleneck.9.weight": torch.zeros(3)}),
        lambda state: [state.pop(name) for name in list(state) if name.startswith("backbone")],
        lambda state: state.clear(),
    ],
)
def test_an_unknown_layout(change: Callable[[dict[str, Tensor]], object]):
    state = dict(states()["cdan"])
    change(state)
    assert recognize(state) is None


def test_a_head_that_is_no_matrix():
    state = states()["cdan"]
    with pytest.raises(UserError, match=r"weight should be a matrix and is \(3,\)"):
        recognize({**state, "head.weight": torch.zeros(3)})
    with pytest.raises(UserError, match="should be a matrix and is missing"):
        recognize({name: state[name] for name in state if name != "head.weight"})


@pytest.mark.parametrize(
    "wrappers", ["module.", "_orig_mod.", "model.", "module._orig_mod.", "model._orig_mod.module."]
)
def test_names_of_wrappers_are_left_out(wrappers):
    state = {wrappers + name: tensor for name, tensor in states()["shot"].items()}
    found = recognize(state)
    assert found is not None
    assert (found.name, found.tensors.keys()) == ("shot", recognize(states()["shot"]).tensors.keys())

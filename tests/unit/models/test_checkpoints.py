"""A model of any program of TLLib, dalib or the authors gives the same logits here, and again when it is read."""

import warnings
from collections import OrderedDict
from functools import partial
from importlib import import_module

import pytest
import torch
from torch import nn

from tests.support.checkpoints import Backbone, K, cdan, randomise
from tests.support.refusals import one_line
from tests.support.tllib import requires_tllib
from tllib_ancon.models.bottleneck import _AveragePool, shot_classifier
from tllib_ancon.models.checkpoints import load_state_dict
from tllib_ancon.models.script_layouts import rebuild_model
from tllib_ancon.toolkit.toolkit import find


def images():
    return torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(2))


def start(state, backbone, **options):
    return rebuild_model(state, lambda: backbone, **options)


def logits_of(model):
    with torch.no_grad():
        return model.eval()(images())


def logits_after_saving(state, folder, **options):
    torch.save(state, folder / "latest.pth")
    return logits_of(start(load_state_dict(folder / "latest.pth"), Backbone(), **options))


# Models of every program


def of_tllib(module, **options):
    find("tllib")
    return import_module(f"tllib.{module}").ImageClassifier(Backbone(classifier=True), K, **options)


def of_dalib(module, **options):
    """dalib's backbones pool."""
    find("dalib")
    pooled = nn.Sequential(OrderedDict(layers=Backbone().layers, pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten()))
    pooled.out_features = 12
    return import_module(f"dalib.adaptation.{module}").ImageClassifier(pooled, K, **options)


class Mcd(nn.Module):
    """What mcd.py of a toolkit trains: its checkpoint is a state dict a part."""

    def __init__(self, module):
        super().__init__()
        find(module.partition(".")[0])
        head = import_module(module).ImageClassifierHead
        self.G = Backbone(classifier=True)
        self.F1 = head(12, K, 9)
        self.F2 = head(12, K, 9)
        self.pool = module.startswith("dalib")  # tllib's head does

    def forward(self, x):
        return self.F1(_AveragePool()(self.G(x)) if self.pool else self.G(x))


class AuthorsClassifier(nn.Module):
    """The keys and the arithmetic of the authors' SourceFreeClassifier."""

    def __init__(self, bottleneck=True):
        super().__init__()
        width = 9 if bottleneck else 12
        self.backbone = Backbone(classifier=True)
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head_fc = nn.Linear(12, 9) if bottleneck else nn.Identity()
        self.head_bn = nn.BatchNorm1d(9) if bottleneck else nn.Identity()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            self.fc_final = nn.utils.weight_norm(nn.Linear(width, K))

    def forward(self, x):
        return self.fc_final(self.head_bn(self.head_fc(self.pool(self.backbone(x)))))


OF_TLLIB = [
    *((name, {}) for name in ("alignment.cdan", "alignment.jan", "self_training.mcc")),
    ("alignment.mdd", {"width": 11}),
    ("normalization.afn", {}),
    ("normalization.afn", {"num_blocks": 3}),
]
MODELS = [
    *(
        pytest.param(partial(of_tllib, module, bottleneck_dim=9, **options), marks=requires_tllib, id=f"tllib-{module}")
        for module, options in OF_TLLIB
    ),
    pytest.param(partial(of_tllib, "modules.classifier"), marks=requires_tllib, id="tllib-erm"),
    pytest.param(partial(Mcd, "tllib.alignment.mcd"), marks=requires_tllib, id="tllib-mcd"),
    *(pytest.param(partial(of_dalib, name, bottleneck_dim=9), id=f"dalib-{name}") for name in ("cdan", "jan", "dan")),
    pytest.param(partial(of_dalib, "mdd", bottleneck_dim=9, width=11), id="dalib-mdd"),
    pytest.param(partial(Mcd, "dalib.adaptation.mcd"), id="dalib-mcd"),
    *(pytest.param(partial(AuthorsClassifier, bottleneck), id=f"authors-{bottleneck}") for bottleneck in (True, False)),
    pytest.param(lambda: shot_classifier(Backbone(), K, 9), id="ours"),
]


@pytest.mark.parametrize("build", MODELS)
def test_a_model_of_any_program_gives_the_same_logits_also_read_again(build, tmp_path):
    model = randomise(build())
    with torch.no_grad():
        expected = model(images())
    expected = expected[0] if isinstance(expected, tuple) else expected
    state = model.state_dict()
    if isinstance(model, Mcd):
        state = {name: part.state_dict() for name, part in model.named_children()}
    assert torch.equal(logits_after_saving(state, tmp_path), expected)
    adapted = randomise(start(load_state_dict(tmp_path / "latest.pth"), Backbone()))
    with torch.no_grad():
        expected, features = adapted.predict(images())
    assert features.shape[1] == adapted.features_dim
    assert torch.equal(logits_after_saving(adapted.state_dict(), tmp_path), expected)


# Backbones


@pytest.mark.parametrize("name", ["dalib", pytest.param("tllib", marks=requires_tllib)])
def test_a_toolkits_resnet_starts_any_of_ours(name, tmp_path):
    """TLLib keeps ``backbone.fc``, dalib deletes it, torchvision's network has pooling and no ``fc``."""
    from torchvision.models import resnet18

    toolkit = find(name)
    model = randomise(toolkit.classifier("cdan", toolkit.create_backbone("resnet18"), K, 9, _AveragePool()))
    torch.save(model.state_dict(), tmp_path / "latest.pth")
    network = resnet18()
    network.fc = nn.Identity()
    batch = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = model(batch)
        for backbone in (network, toolkit.create_backbone("resnet18"), find("dalib").create_backbone("resnet18")):
            restored = start(load_state_dict(tmp_path / "latest.pth"), backbone).eval()
            assert torch.equal(restored(batch), expected)


@requires_tllib
@pytest.mark.parametrize(("name", "shape"), [("lenet", (2, 1, 28, 28)), ("dtn", (2, 3, 32, 32))])
def test_a_digit_network_is_not_pooled(name, shape):
    toolkit = find("tllib")
    model = randomise(toolkit.classifier("mdd", toolkit.create_backbone(name), 10, 9, _AveragePool()))
    batch = torch.randn(shape)
    restored = start(model.state_dict(), toolkit.create_backbone(name), pool=False).eval()
    with torch.no_grad():
        assert (restored(batch) - model(batch)).abs().max() == 0


def test_a_head_that_does_not_fit():
    headless = cdan()
    del headless["head.weight"]
    for state in ({**cdan(), "head.weight": torch.zeros(3)}, headless):
        with one_line("head does not fit its layout"):
            start(state, Backbone())


@pytest.mark.parametrize("extra", ["decoder.weight", "bottleneck.9.weight"])
def test_an_unknown_layout(extra):
    assert rebuild_model({**cdan(), extra: torch.zeros(3)}, Backbone) is None
    assert rebuild_model({}, Backbone) is None

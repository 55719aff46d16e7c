"""A reference builds the network of its kind, and tells two models apart."""

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

import tllib_ancon
from tests.support.refusals import one_line
from tllib_ancon.models.references import ModelRef, refer
from tllib_ancon.models.references.run import Run
from tllib_ancon.models.references.weights_file import WeightsFile
from tllib_ancon.models.references.zoo import Zoo

SETTINGS = {"arch": "resnet18", "arch_option": (), "no_pool": False, "scratch": True}


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    """What leads to each kind: a module, a name, the run of a whole network and a file of weights."""
    folder = tmp_path_factory.mktemp("references")
    network = resnet18(num_classes=3)
    torch.save(network.state_dict(), folder / "model.pth")
    images = torch.rand(12, 3, 32, 32)
    how = {"method": "adabn", "epochs": 1, "workers": 0, "quiet": True}
    tllib_ancon.adapt(network, images, log=str(folder / "run"), **how)
    return {
        ModelRef: {"module": nn.Linear(2, 3)},
        Zoo: {"checkpoint": "imagenet"},
        Run: {"checkpoint": str(folder / "run")},
        WeightsFile: {"checkpoint": str(folder / "model.pth")},
    }


@pytest.mark.parametrize("kind", [ModelRef, Zoo, Run, WeightsFile])
def test_what_is_passed_leads_to_its_kind_which_builds_the_network(kind, requests):
    reference = refer(**requests[kind])
    assert type(reference) is kind
    network = reference.network(SETTINGS)
    again = reference.network(SETTINGS)
    assert network is not again
    assert network.state_dict().keys() == again.state_dict().keys()
    assert reference.digest() == refer(**requests[kind]).digest()
    assert reference.describe()
    assert reference.is_whole == (kind in (ModelRef, Run))
    assert (reference.callers_module is not None) == (kind is ModelRef)


def test_what_leads_to_no_model_is_one_line(tmp_path):
    with one_line("no model to start from: pass `checkpoint`"):
        refer(arch="resnet18")
    with one_line("is not a file; give a checkpoint or a run directory"):
        refer(checkpoint=str(tmp_path / "none.pth"))
    with one_line("holds no checkpoint"):
        refer(checkpoint=str(tmp_path))

"""A request is taken by the kind of its model, which builds the network and tells two models apart."""

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

import tllib_ancon
from tests.support.refusals import one_line
from tllib_ancon.models.references import Request, refer
from tllib_ancon.models.references.module import Module
from tllib_ancon.models.references.run import Run
from tllib_ancon.models.references.weights_file import WeightsFile
from tllib_ancon.models.references.zoo import Zoo

SETTINGS = {"arch": "resnet18", "arch_option": (), "no_pool": False, "scratch": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of weights, and the run of a whole network."""
    folder = tmp_path_factory.mktemp("references")
    network = resnet18(num_classes=3)
    torch.save(network.state_dict(), folder / "model.pth")
    images = torch.rand(12, 3, 32, 32)
    how = {"method": "adabn", "epochs": 1, "workers": 0, "quiet": True}
    tllib_ancon.adapt(network, images, log=str(folder / "run"), **how)
    return folder


def requests(folder):
    return {
        Module: Request(module=nn.Linear(2, 3)),
        Zoo: Request(checkpoint="imagenet"),
        Run: Request(checkpoint=str(folder / "run")),
        WeightsFile: Request(checkpoint=str(folder / "model.pth")),
    }


@pytest.mark.parametrize("kind", [Module, Zoo, Run, WeightsFile])
def test_a_request_is_taken_by_its_kind_which_builds_the_network(kind, folder):
    reference = refer(requests(folder)[kind])
    assert type(reference) is kind
    network = reference.network(SETTINGS)
    again = reference.network(SETTINGS)
    assert network is not again
    assert network.state_dict().keys() == again.state_dict().keys()
    assert reference.digest() == refer(requests(folder)[kind]).digest() or kind is Module
    assert reference.describe()
    assert reference.is_whole == (kind in (Module, Run))
    assert (reference.callers_module is not None) == (kind is Module)


def test_what_no_kind_takes_is_one_line(tmp_path):
    with one_line("no model to start from: pass `checkpoint`"):
        refer(Request(arch="resnet18"))
    with one_line("is not a file; give a checkpoint or a run directory"):
        refer(Request(checkpoint=str(tmp_path / "none.pth")))
    with one_line("holds no checkpoint"):
        refer(Request(checkpoint=str(tmp_path)))

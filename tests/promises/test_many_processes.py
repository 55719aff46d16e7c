"""Two processes with batches of B do what one process does with batches of 2 B."""

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import tllib_ancon
from tests.support.domains_on_disk import write_domain
from tests.support.killable import outcome, results_in_two
from tests.support.outcomes import differences

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="compares CPUs; set CUDA_VISIBLE_DEVICES= to hide GPUs"
)

IMAGES = torch.randn(24, 3, 4, 4, generator=torch.Generator().manual_seed(0))
LABELS = [number % 3 for number in range(24)]
FIXED = {"epochs": 4, "lr": 0.1, "hold_out": 0, "adapted": "all", "workers": 0, "quiet": True}
VARIANTS = {
    **{name: {"method": name} for name in ("elr", "shot+ancon", "nrc+ancon", "aad", "tent", "ancon-auto")},
    "adabn": {"method": "adabn", "epochs": 1},
    "eta": {"method": "eta", "entropy_margin": 0.8, "similarity_margin": 0.95},
    "soft votes": {"method": "ancon", "temperature": 1.0, "convention": "paper"},
}
ADVERSARIAL = ("cdan", "mdd")


def network(norm=nn.Identity):
    """Without batch-norm the features of an image do not depend on its batch."""
    torch.manual_seed(0)
    body = nn.Linear(48, 6, bias=False), nn.Tanh(), nn.Linear(6, 5)
    model = nn.Sequential(nn.Flatten(), *body, norm(5), nn.Linear(5, 3))
    model[-1].weight.data *= 8
    return model.eval()


def adapt(name, log, batch_size):
    """A batch holds all images, in this process or in both, so that their order does not matter."""
    settings = {**FIXED, **VARIANTS[name], "batch_size": batch_size, "log": log}
    norm = nn.BatchNorm1d if name == "adabn" else nn.Identity
    return tllib_ancon.adapt(network(norm), IMAGES, labels=LABELS, **settings).model.state_dict()


def pretrain(method, root, log):
    """What the optimiser trains, in the end: the network and the loss between domains."""
    where = {"root": root, "data": "ImageList", "source": ["bright"], "target": ["dark"], "log": log}
    small = {"arch": "small_cnn", "scratch": True, "image_size": 8, "bottleneck_dim": 5}
    length = {"epochs": 1, "iters_per_epoch": 3, "batch_size": 4, "workers": 0, "quiet": True}
    optimizers = []
    handle = register_optimizer_step_post_hook(lambda optimizer, *_: optimizers.append(optimizer))
    tllib_ancon.pretrain(tllib_ancon.PretrainConfig(method=method, **where, **small, **length))
    handle.remove()
    return [group["params"] for group in optimizers[-1].param_groups]


def one_of_many(folder):
    results = {name: adapt(name, folder / name, len(IMAGES) // 2) for name in VARIANTS}
    return results | {method: pretrain(method, folder / "data", folder / method) for method in ADVERSARIAL}


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """The folder of the runs in two processes, and the weights that each process has in the end."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "data").mkdir()
    for seed, name in enumerate(("bright", "dark")):
        write_domain(folder / "data", name, 24, seed=seed, side=8)
    return folder, results_in_two(one_of_many, folder, folder=folder)


@pytest.mark.parametrize("name", VARIANTS)
def test_two_processes_do_what_one_does_with_twice_the_batch(name, many, tmp_path):
    folder, (first, second) = many
    expected = adapt(name, tmp_path, len(IMAGES))
    torch.testing.assert_close(first[name], expected, rtol=0, atol=1e-5)
    assert differences(first[name], second[name]) == []
    ours = outcome(tmp_path)
    theirs = outcome(folder / name)
    for epochs in (ours["metrics.jsonl"], theirs["metrics.jsonl"]):
        for epoch in epochs:
            epoch.pop("images_per_second", None)
    torch.testing.assert_close(theirs["metrics.jsonl"], ours["metrics.jsonl"], rtol=0, atol=1e-5)
    for part, values in ours["predictions.npz"].items():
        torch.testing.assert_close(theirs["predictions.npz"][part], values, rtol=0, atol=1e-3)


@pytest.mark.parametrize("method", ADVERSARIAL)
def test_both_processes_end_with_one_source_model_and_one_loss_between_domains(method, many):
    first, second = (weights[method] for weights in many[1])
    assert len(first) > 2
    torch.testing.assert_close(first, second, rtol=0, atol=0)

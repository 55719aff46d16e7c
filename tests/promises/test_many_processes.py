"""Two processes with batches of B do what one process does with batches of 2 B in the same order."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torchvision.transforms.functional import to_tensor

from tests.support.domains_on_disk import write_domain
from tests.support.killable import differences, results_in_two
from tests.support.small import without
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.data.loading import EpochSampler, ImageLoader
from tllib_ancon.data.open import open_domain
from tllib_ancon.models.bottleneck import BottleneckClassifier
from tllib_ancon.models.references import ModelRef
from tllib_ancon.opening.classes import ClassMap
from tllib_ancon.opening.defaults import Facts, resolve
from tllib_ancon.opening.open import Opened, OpenedModel
from tllib_ancon.opening.pretraining import Pretraining
from tllib_ancon.opening.transforms import Transforms
from tllib_ancon.self_training.elr import _WithELR
from tllib_ancon.toolkit.toolkit import find
from tllib_ancon.training.adaptation import compose
from tllib_ancon.training.pretrain import _adversarial

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="compares CPUs; set CUDA_VISIBLE_DEVICES= to hide GPUs"
)

WORLD_SIZE = 2
BATCH = 6
EPOCHS = 2
SIDE = 8
IMAGES = 41


SAME = 1e-5
COMMON = re.compile(r"\.(memory|lists|average)\b")
"""State of a method that is of all samples in every process."""

VARIANTS = {
    **{name: {"method": name} for name in ("elr", "shot+ancon", "aad", "tent")},
    "adabn": {"method": "adabn", "epochs": 1},
    "eta": {"method": "eta", "entropy_margin": 0.8, "similarity_margin": 0.95},
    "auto": {"method": "auto"},
    "ancon-auto": {"method": "ancon-auto"},
    "soft votes": {"temperature": 1.0, "convention": "paper"},
}
ADVERSARIAL = ("cdan", "mdd")
STEPS = 5
"""Of CDAN and MDD, in an epoch."""


class Encoder(nn.Sequential):
    """Without batch-norm, so that an image's features do not depend on its batch."""

    out_features = 6
    pretrained = False

    def __init__(self):
        super().__init__(nn.Conv2d(3, 6, 3, bias=False), nn.Tanh())


def contrasting(image):
    """So that an untrained network does not say the same of every image."""
    return 8 * (to_tensor(image) - 0.17)


class Interleaved(EpochSampler):
    """Orders of many processes in one: step by step, a batch of each."""

    def __init__(self, samplers, batch):
        super().__init__(range(0), samplers[0].num_samples, 0, sum(map(len, samplers)))
        self.samplers = samplers
        self.batch = batch

    def __iter__(self):
        for sampler in self.samplers:
            sampler.epoch = self.epoch
        keys = torch.tensor([list(sampler) for sampler in self.samplers])
        batches = keys.unflatten(1, (-1, self.batch))
        return iter(batches.transpose(0, 1).flatten().tolist())


def build(target, folder, batch_size, **options):
    torch.manual_seed(0)
    bottleneck = nn.Linear(6, 5, bias=False)
    head = nn.Linear(5, 3, bias=False)
    head.weight.data *= 4
    if options.get("method") == "adabn":
        bottleneck = nn.Sequential(bottleneck, nn.BatchNorm1d(5))
    model = BottleneckClassifier(Encoder(), 3, bottleneck, head, features_dim=5, finetune=False)
    fixed = {"method": "ancon", "epochs": EPOCHS, "batch_size": batch_size, "lr": 0.1, "workers": 0, "quiet": True}
    fixed["log"] = folder
    given = AdaptConfig(**{**fixed, "adapted": "all", **options})
    settings, layers = resolve(given, Facts(ModelRef()))
    opened = Opened(
        requested=given,
        settings=settings,
        layers=layers,
        model=OpenedModel(ModelRef(), model, None, ()),
        classifier=model,
        images=target,
        transforms=Transforms(contrasting, contrasting),
        classes=ClassMap(3),
        probe=torch.zeros(2, 3, SIDE, SIDE),
    )
    return compose(opened)


def in_the_order_of_many(target, folder, **options):
    """In one process."""
    adaptation = build(target, folder, WORLD_SIZE * BATCH, **options)
    (loader,) = adaptation.loaders
    adaptation.loaders = [in_their_order(loader, BATCH)]
    return adaptation


def in_their_order(loader, a_step, length=None):
    """The same images in the order of many processes, each of which visits whole steps of so many, or ``length``."""
    images = loader.dataset
    size = len(images)
    length = length or size // WORLD_SIZE // a_step * a_step
    samplers = [
        EpochSampler(range(rank, size, WORLD_SIZE), size, images.seed, length, rank) for rank in range(WORLD_SIZE)
    ]
    return ImageLoader(images, WORLD_SIZE * BATCH, 0, Interleaved(samplers, BATCH), drop_last=True)


def outcome(adaptation):
    """δ after each step; what the method keeps of each sample and of all, the parameters and the metrics in the end."""
    thresholds = []
    method = adaptation.objective.method
    step = adaptation._learn

    def recorded(*args):
        result = step(*args)
        thresholds.append(method.diagnostics().get("threshold", torch.tensor(0.0)).clone())
        return result

    adaptation._learn = recorded
    adaptation.fit({})
    positions = torch.tensor(method.shard.positions)
    state = method.state_dict()
    return {
        "thresholds": thresholds,
        "positions": positions,
        "votes": method.votes(positions),
        "averages": method.early_learning.targets if isinstance(method, _WithELR) else None,
        "common": {name: state[name] for name in state if COMMON.search(name)},
        "parameters": adaptation.network.state_dict(),
        "metrics": without(adaptation.metrics),
    }


class PlainToolkit:
    """TLLib with networks without batch-norm and dropout, so that an image's outputs are its own."""

    def __init__(self):
        self.toolkit = find()

    def __getattr__(self, name):
        return getattr(self.toolkit, name)

    def classifier(self, *arguments):
        model = self.toolkit.classifier(*arguments)
        without_batches_and_noise(model)
        return model


def adversarial(domains, log, batch_size, toolkit, **settings):
    fixed = {"epochs": EPOCHS, "iters_per_epoch": STEPS, "bottleneck_dim": 5, "lr": 0.1, "lr_gamma": 0.1, "workers": 0}
    config = PretrainConfig(log=log, batch_size=batch_size, **{**fixed, **settings}, quiet=True)
    torch.manual_seed(0)
    source, target = domains
    transforms = Transforms(contrasting, contrasting)
    opened = Pretraining(config, Encoder(), source, transforms, torch.zeros(2, 3, SIDE, SIDE), target)
    return _adversarial(opened, toolkit)


def without_batches_and_noise(model):
    for name, module in model.named_children():
        if isinstance(module, nn.BatchNorm1d | nn.Dropout):
            setattr(model, name, nn.Identity())
        without_batches_and_noise(module)


def adversarial_state(training):
    """Of a run that is finished here."""
    objective = training.objective
    training.fit({})
    return {
        "model": dict(training.network.state_dict()),
        "loss": dict(objective.adversary.state_dict()),
        "optimizer": training.optimizer.state_dict()["state"],
        "reversals": objective.reversal.state_dict(),
        "noise": torch.rand(3),
        "metrics": without(training.metrics),
    }


def one_of_many(root, out):
    domains = [open_domain(root, "ImageList", [name]) for name in ("bright", "dark")]
    target = domains[1]
    usual = adversarial_state(adversarial(domains, out / "usual", BATCH, find(), method="cdan"))
    variants = {}
    for name, variant in VARIANTS.items():
        variants[name] = outcome(build(target, out / name, BATCH, **variant))
    return {
        "variants": variants,
        "with batch-norm": usual,
        "plain": {
            method: adversarial_state(adversarial(domains, out / method, BATCH, PlainToolkit(), method=method))
            for method in ADVERSARIAL
        },
    }


@pytest.fixture(scope="module")
def domains(tmp_path_factory):
    root = tmp_path_factory.mktemp("domains")
    for seed, name in enumerate(("bright", "dark")):
        write_domain(root, name, IMAGES + 1 - seed, seed=seed, side=SIDE)
    return [open_domain(root, "ImageList", [name]) for name in ("bright", "dark")]


@pytest.fixture(scope="module")
def target(domains):
    return domains[1]


@pytest.fixture(scope="module")
def many(target, tmp_path_factory):
    root = Path(target.paths[0]).parents[2]
    out = tmp_path_factory.mktemp("many")
    return results_in_two(one_of_many, root, out, folder=out)


def close(expected, found):
    torch.testing.assert_close(found, expected, rtol=0, atol=SAME)


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_processes_do_what_one_does_with_twice_the_batch(target, many, variant, tmp_path):
    expected = outcome(in_the_order_of_many(target, tmp_path, **VARIANTS[variant]))
    found = [process["variants"][variant] for process in many]
    for process in found:
        close(expected["thresholds"], process["thresholds"])
        for part in ("parameters", "common"):
            for name, tensor in expected[part].items():
                close(tensor, process[part][name])
        torch.testing.assert_close(process["metrics"], expected["metrics"], rtol=0, atol=SAME)
    for kept in ("votes", "averages"):
        if expected[kept] is not None:
            together = torch.empty_like(expected[kept])
            for process in found:
                together[process["positions"]] = process[kept]
            close(expected[kept], together)
            assert (together.sum(0) > 0).sum() > 1


def test_all_processes_end_with_one_model_and_one_discriminator_and_with_noise_of_their_own(many):
    first, second = (process["with batch-norm"] for process in many)
    for one in (first, second):
        one["model"] = {name: tensor for name, tensor in one["model"].items() if "running" not in name}
    for part in ("model", "loss"):
        assert differences(first[part], second[part]) == []
    assert not torch.equal(first["noise"], second["noise"])


@pytest.mark.parametrize("method", ADVERSARIAL)
def test_cdan_and_mdd_in_two_processes_do_what_one_does_with_twice_the_batch(domains, many, method, tmp_path):
    training = adversarial(domains, tmp_path, WORLD_SIZE * BATCH, PlainToolkit(), method=method)
    training.loaders = [in_their_order(loader, BATCH, STEPS * BATCH) for loader in training.loaders]
    expected = adversarial_state(training)
    for process in many:
        for part in ("model", "loss"):  # the discriminator's batch-norm magnifies rounding
            torch.testing.assert_close(process["plain"][method][part], expected[part], rtol=1e-2, atol=5e-3)

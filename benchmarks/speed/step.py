"""A training step: what AnCon adds to self-training's."""

import time

import numpy as np
import torch

from benchmarks.speed.timing import in_turn, row, wall_clock
from tllib_ancon import methods
from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.models.batch_norm import BatchNormPolicy
from tllib_ancon.models.bottleneck import shot_classifier
from tllib_ancon.models.networks import create_backbone
from tllib_ancon.training.learning import choose_adapted_parameters
from tllib_ancon.training.optimizer import create_optimizer

BATCH, NUM_SAMPLES, NUM_CLASSES = 64, 5000, 10
WARMUP = 5


class TrainingStep:
    """One step of the adaptation loop on random images, with the backward pass in two: the method's, from its loss to
    the logits, and the model's.

    Attributes:
        seconds: of the method's part, for each step
    """

    def __init__(self, method, arch, side, device, clock):
        self.generator = torch.Generator().manual_seed(0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            backbone = create_backbone(arch, pretrained=False)
            model = shot_classifier(backbone, NUM_CLASSES, finetune=False)
        self.model = model.to(device)
        choose_adapted_parameters(model, "all-but-head")
        BatchNormPolicy().set_mode(model)
        self.optimizer = create_optimizer(model.get_parameters(1e-3), AdaptConfig())
        sizes = {"num_samples": NUM_SAMPLES, "num_classes": NUM_CLASSES, "feature_dim": 256}
        self.method = methods.create(method, **sizes).to(device)
        self.images = torch.randn(BATCH, 3, side, side, generator=self.generator).to(device)
        self.clock = clock
        self.seconds = []

    def __call__(self):
        logits, features = self.model(self.images)
        indices = torch.randint(NUM_SAMPLES, (BATCH,), generator=self.generator)
        leaf = logits.detach().requires_grad_()
        started = self.clock()
        self.method(indices, leaf, features).backward()
        self.seconds.append(self.clock() - started)
        logits.backward(leaf.grad)
        self.optimizer.step()
        self.optimizer.zero_grad()


def measure(rounds=600):
    """The small CNN at 32² on the CPU, and ResNet-50 at 224² where there is a GPU; batches of 64.

    The model's part of a step is the same for both methods, and its noise is greater than what they differ by: two
    copies of one method differ by up to 1 % a step. So the ratio compares the methods' own parts, timed in each step.
    """
    rows = compare("small CNN at 32², CPU", ("small_cnn", 32, "cpu", time.thread_time), rounds)
    if torch.cuda.is_available():
        rows += compare("ResNet-50 at 224², GPU", ("resnet50", 224, "cuda", wall_clock), rounds)
    return rows


def compare(title, scene, rounds):
    """Steps of both methods in turn, with the same network, side of images, device and clock."""
    plain = TrainingStep("self-training", *scene)
    ancon = TrainingStep("ancon", *scene)
    seconds = np.array(in_turn({"plain": plain, "ancon": ancon}, rounds, WARMUP, scene[-1])["plain"])
    added = np.subtract(ancon.seconds, plain.seconds)[WARMUP:]
    return [
        row(f"step of self-training, {title}", 1e3 * seconds, "ms"),
        row("what AnCon adds to it", 1e3 * added, "ms"),
        row("step of AnCon / of self-training, by that", 1 + added / np.median(seconds), "x"),
    ]

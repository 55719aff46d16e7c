"""A second opinion, the predictions of another model, enters the pseudo-labels by its reliability."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import tllib_ancon
from tests.domains_on_disk import adapt_arguments, small_arguments
from tests.end_to_end.killable import differences
from tests.networks import normalised
from tests.self_training.neighborhoods import few_neighbors
from tests.support.refusals import one_line
from tllib_ancon import methods
from tllib_ancon.cli.main import main
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.training.teacher import reliability

CLASSES = ("red", "green", "blue")
SIDE = 8
IMAGES = 36
LABELS = np.arange(IMAGES) % 3
NORMALISED = {"norm_mean": (0.5,) * 3, "norm_std": (0.5,) * 3}
LABELLING = [name for name in methods.names() if methods.method_class(name).makes_labels]


def pictures():
    """Noise whose strongest colour is the class."""
    images = np.random.default_rng(0).integers(0, 120, (IMAGES, SIDE, SIDE, 3))
    images[np.arange(IMAGES), :, :, LABELS] += 60
    return images.astype(np.uint8)


PICTURES = pictures()


class Student(nn.Sequential):
    """A network that is right for half of the pictures."""

    def __init__(self, names=None):
        torch.manual_seed(21)
        pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        body = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU()
        super().__init__(*body, *pooled, nn.Linear(6, 3))
        self[5].weight.data *= 20
        self.class_names = names
        for _ in range(50):
            self(normalised(PICTURES))  # for the statistics of batch-norm
        self.eval()


class Colours(nn.Module):
    """A teacher whose logits are the mean colours, in the order of its classes; it stores the images that it gets."""

    def __init__(self, order=(0, 1, 2), names=None, factor=20.0, bias=(0.0, 0.0, 0.0)):
        super().__init__()
        self.head = nn.Linear(3, len(order))
        self.head.weight.data = factor * torch.eye(3)[list(order)]
        self.head.bias.data = torch.tensor(bias)[: len(order)]
        self.class_names = names

    def forward(self, images):
        SEEN.append(images)
        return self.head(images.mean((2, 3)))


SEEN = []


class Of20Pixels(Colours):
    """A teacher that takes images of another size alone, and says so."""

    preprocessing = Preprocessing((0.5,) * 3, (0.5,) * 3, image_size=20, crop_fraction=1.0, val_resizing="default")

    def forward(self, images):
        assert images.shape[2:] == (20, 20)
        return super().forward(images)


def adapt(model=None, **settings):
    model = Student() if model is None else model
    quick = {"epochs": 3, "batch_size": 12, "lr": 0.1, "image_size": SIDE, "workers": 0, "quiet": True, **NORMALISED}
    return tllib_ancon.adapt(model, PICTURES, labels=LABELS, **{**quick, **settings})


@cache
def alone():
    return adapt()


def weights(result):
    return dict(result.model.state_dict())


def test_a_better_teacher_improves_the_result():
    by_itself = adapt(epochs=6).metrics
    helped = adapt(epochs=6, teacher=Colours(), workers=2).metrics
    assert helped[1]["teacher_weight"] > 1
    assert helped[-1]["accuracy"] > by_itself[-1]["accuracy"] + 10
    assert helped[-1]["accuracy"] > by_itself[0]["accuracy"] + 10
    assert adapt(epochs=6, teacher=Of20Pixels()).metrics[-1]["accuracy"] > 80


def test_a_teacher_that_predicts_one_class_does_not_count():
    with_teacher = adapt(teacher=Colours(factor=0.0, bias=(9.0, 0.0, 0.0))).metrics
    assert with_teacher[1]["teacher_weight"] < 1e-6
    assert with_teacher[-1]["accuracy"] == alone().metrics[-1]["accuracy"]


def test_a_weight_of_zero_is_no_teacher():
    assert differences(weights(alone()), weights(adapt(teacher=Colours(), teacher_weight=0))) == []


@pytest.mark.parametrize("method", LABELLING)
def test_every_method_that_makes_labels_hears_the_teacher(method):
    settings = {"method": method, "epochs": 1, "criterion": "last", **few_neighbors(method, 2, 2)}
    unsure = Student()
    unsure[5].weight.data /= 10
    by_itself = adapt(unsure, **settings)
    with_teacher = adapt(unsure, **settings, teacher=Colours(), teacher_weight=9)
    assert differences(weights(by_itself), weights(with_teacher))


@pytest.mark.parametrize("method", sorted({*methods.names()} - {*LABELLING}))
def test_a_teacher_of_a_method_without_labels_is_an_error(method):
    with one_line(f"`teacher` has no effect with `method={method}`, which makes no labels"):
        adapt(method=method, teacher=Colours())


@pytest.mark.parametrize(
    ("teacher", "line"),
    [
        (Colours((2, 0, 1), ["BLUE", "RED", "GREEN"]), ""),
        (Colours(), "those of the teacher are taken to be in the order"),
    ],
)
def test_classes_are_matched_by_name_or_by_order_and_a_line_says_so(teacher, line, capsys):
    expected = adapt(Student(CLASSES), teacher=Colours(names=CLASSES))
    capsys.readouterr()
    assert differences(weights(expected), weights(adapt(Student(CLASSES), teacher=teacher, quiet=False))) == []
    shown = "".join(capsys.readouterr())
    assert line in shown
    assert ("order" in shown) == bool(line)


@pytest.mark.parametrize("epochs", [1, 4])
def test_the_teacher_predicts_each_image_and_its_mirror_once(epochs):
    SEEN.clear()
    adapt(epochs=epochs, teacher=Colours(), teacher_weight=1)
    images, mirrors = [images for images in SEEN if len(images) == IMAGES]
    assert torch.equal(images.flip(3), mirrors)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"teacher": Colours(factor=torch.nan)},
            "the `teacher` predicts numbers that are not finite for 36 of 36 images; pass another",
        ),
        ({"teacher": Student()}, "`teacher` is the model itself, which has no second opinion"),
        ({"teacher": Colours((0, 1))}, "the `teacher` has 2 classes, the model 3, and not all of these have a name"),
        ({"teacher": Colours(names=("red", "green", "cyan"))}, "none is named 'blue'; pass a teacher with the classes"),
        ({"teacher": nn.Linear(7, 3)}, r"the `teacher` cannot predict images \(8, 3, 8, 8\)"),
        (
            {"teacher": lambda images: images},
            "`teacher`: `model` must be a torch.nn.Module",
        ),
        ({"teacher": "nowhere.pth"}, "checkpoint nowhere.pth is not a file"),
        ({"teacher": "hf:nowhere"}, "`teacher`: `arch` hf:nowhere cannot be loaded"),
        ({"teacher_weight": 1.0}, "`teacher_weight=1.0` has no effect without `teacher`; add it"),
        ({"teacher": Colours(), "teacher_weight": -1.0}, "`teacher_weight` must be at least 0, got -1"),
    ],
)
def test_a_teacher_that_cannot_be_used(settings, message, tmp_path):
    log = tmp_path / "run"
    with one_line(message):
        adapt(Student(CLASSES), log=log, **settings)
    assert not (log / "metrics.jsonl").exists()
    adapt(Student(CLASSES), epochs=1, log=log, teacher=Colours())  # the advice leads on in the same folder


def test_weights_of_an_unknown_network_get_advice_about_a_teacher(tmp_path):
    torch.save(Colours().state_dict(), tmp_path / "weights.pth")
    advice = r"does not fit the network: .*; pass a run directory or hf:NAME, or in Python the network itself$"
    with one_line(advice):
        adapt(Student(CLASSES), teacher=str(tmp_path / "weights.pth"))


def test_a_run_is_the_teacher_of_a_command(domains, source_checkpoint, tmp_path, refused, capsys):
    other = tmp_path / "other"
    assert main(["pretrain", *small_arguments(domains), "--epochs", "3", "--seed", "1", "--log", str(other)]) == 0
    log = tmp_path / "run"
    command = adapt_arguments(domains, source_checkpoint, log, "--teacher", str(other))
    assert main(command) == 0, capsys.readouterr().err
    itself = adapt_arguments(domains, source_checkpoint, log, "--teacher", str(log), "--overwrite")
    assert "lies where this run writes its own" in refused(itself)
    assert "--teacher has" in refused([*command, "--method", "adabn"])


def test_reliability_is_agreement_beyond_chance_times_entropy():
    diverse = 9 * torch.eye(4)[torch.arange(400) % 4]
    constant = 9 * torch.eye(4)[[0]].expand(400, -1)
    assert reliability(diverse, diverse) == pytest.approx(math.log(4))
    assert reliability(constant, constant) == pytest.approx(0.001)
    assert reliability(diverse, diverse.roll(1, 0)) == pytest.approx(0.001)  # less than by chance
    half = torch.cat([diverse[:200], diverse.roll(2, 0)[200:]])
    assert reliability(diverse, half) == pytest.approx(math.log(4) * (0.5 - 0.25) / 0.75)

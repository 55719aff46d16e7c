"""A second opinion: another model whose predictions enter the pseudo-labels."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tllib_ancon
from tests.domains_on_disk import adapt_arguments, small_arguments
from tests.end_to_end.killable import differences
from tests.self_training.neighborhoods import few_neighbors
from tllib_ancon import methods
from tllib_ancon.cli.main import main
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.training.adaptation import Adaptation
from tllib_ancon.training.teacher import reliability

CLASSES, SIDE, IMAGES = ("red", "green", "blue"), 8, 36
LABELS = np.arange(IMAGES) % 3
NORMALISED = {"norm_mean": (0.5,) * 3, "norm_std": (0.5,) * 3}
LABELLING = [name for name in methods.names() if methods.makes_labels(name)]


def pictures() -> np.ndarray:
    """Noise whose strongest colour is the class."""
    images = np.random.default_rng(0).integers(0, 120, (IMAGES, SIDE, SIDE, 3))
    images[np.arange(IMAGES), :, :, LABELS] += 60
    return images.astype(np.uint8)


class Student(nn.Sequential):
    """A network that is right for half of the pictures."""

    def __init__(self, names: Any = None):
        torch.manual_seed(21)
        super().__init__(
            nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)
        )
        self[5].weight.data *= 20
        self.class_names = names
        normalised = (torch.from_numpy(pictures()).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.5
        for _ in range(50):
            self(normalised)  # for the statistics of batch-norm
        self.eval()


class Colours(nn.Module):
    """A teacher whose logits are the mean colours, in the order of its classes."""

    def __init__(self, order: tuple[int, ...] = (0, 1, 2), names: Any = None, factor: float = 20.0):
        super().__init__()
        self.head = nn.Linear(3, len(order), bias=False)
        self.head.weight.data = factor * torch.eye(3)[list(order)]
        self.class_names = names
        self.calls = 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        return self.head(images.mean((2, 3)))


class Of(Colours):
    """One that takes images of another size alone, and says so."""

    preprocessing = Preprocessing((0.5,) * 3, (0.5,) * 3, image_size=20, crop_fraction=1.0, val_resizing="default")

    def forward(self, images: Tensor) -> Tensor:
        assert images.shape[2:] == (20, 20)
        return super().forward(images)


def adapt(model: nn.Module | None = None, images: Any = None, **settings: Any) -> Any:
    images = pictures() if images is None else images
    quick = {"epochs": 3, "batch_size": 12, "lr": 0.1, "image_size": SIDE, **NORMALISED}
    return tllib_ancon.adapt(model or Student(), images, labels=LABELS, **{"quiet": True, **quick, **settings})


def weights(result: Any) -> dict[str, Tensor]:
    return dict(result.model.state_dict())


def test_a_better_teacher_improves_the_result() -> None:
    alone, helped = adapt(epochs=6), adapt(epochs=6, teacher=Colours())
    assert helped.metrics[1]["teacher_weight"] > 1
    assert helped.metrics[-1]["accuracy"] > max(alone.metrics[-1]["accuracy"], alone.metrics[0]["accuracy"]) + 10


def test_a_teacher_that_predicts_one_class_does_not_count() -> None:
    blind = Colours(factor=0.0)
    blind.head.bias = nn.Parameter(torch.tensor([9.0, 0.0, 0.0]))
    alone, with_teacher = adapt(), adapt(teacher=blind)
    assert with_teacher.metrics[1]["teacher_weight"] < 1e-6
    assert with_teacher.metrics[-1]["accuracy"] == alone.metrics[-1]["accuracy"]


def test_a_weight_of_zero_is_no_teacher() -> None:
    assert differences(weights(adapt(workers=0)), weights(adapt(workers=0, teacher=Colours(), teacher_weight=0))) == []


@pytest.mark.parametrize("method", LABELLING)
def test_every_method_that_makes_labels_hears_the_teacher(method: str) -> None:
    given = {"method": method, "epochs": 1, "workers": 0, "criterion": "last", **few_neighbors(method, 2, 2)}
    unsure = Student()
    unsure[5].weight.data /= 10
    alone, with_teacher = adapt(unsure, **given), adapt(unsure, **given, teacher=Colours(), teacher_weight=9)
    assert differences(weights(alone), weights(with_teacher))


@pytest.mark.parametrize("method", sorted({*methods.names()} - {*LABELLING}))
def test_a_teacher_of_a_method_without_labels_is_an_error(method: str) -> None:
    with pytest.raises(UserError, match=f"`teacher` has no effect with `method={method}`, which makes no labels"):
        adapt(method=method, teacher=Colours())


def test_classes_are_matched_by_name(capsys) -> None:
    same = adapt(Student(CLASSES), workers=0, teacher=Colours(names=CLASSES))
    capsys.readouterr()
    order = (2, 0, 1)
    permuted = Colours(order, [CLASSES[label].upper() for label in order])
    assert differences(weights(same), weights(adapt(Student(CLASSES), workers=0, teacher=permuted, quiet=False))) == []
    assert "order" not in capsys.readouterr().err


def test_classes_without_names_are_matched_by_order_and_a_line_says_so(capsys) -> None:
    named = adapt(Student(CLASSES), workers=0, teacher=Colours(names=CLASSES))
    capsys.readouterr()
    by_order = adapt(Student(CLASSES), workers=0, teacher=Colours(), quiet=False)
    assert differences(weights(named), weights(by_order)) == []
    said = capsys.readouterr()
    assert "their 3 classes are taken to be in the same order" in said.out + said.err


def test_a_teacher_has_its_own_preprocessing() -> None:
    assert adapt(epochs=6, teacher=Of()).metrics[-1]["accuracy"] > 80


def test_the_teacher_predicts_each_image_and_its_mirror_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    forward = Colours.forward

    def observed(model: Colours, images: Tensor) -> Tensor:
        seen.append(images)
        return forward(model, images)

    monkeypatch.setattr(Colours, "forward", observed)
    for epochs in (1, 4):
        seen.clear()
        adapt(workers=0, epochs=epochs, teacher=Colours(), teacher_weight=1)
        images, mirrors = [images for images in seen if len(images) == IMAGES]
        assert torch.equal(images.flip(3), mirrors)


def test_a_run_that_resumes_continues_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = adapt(teacher=Colours(), log=str(tmp_path / "whole"))
    train = Adaptation._train_epoch
    for epochs_before_the_cut in (0, 1):
        log = str(tmp_path / str(epochs_before_the_cut))

        def cut_off(adaptation: Adaptation, epoch: int, last: int = epochs_before_the_cut) -> Any:
            return train(adaptation, epoch) if epoch <= last else 1 / 0

        with monkeypatch.context() as patched:
            patched.setattr(Adaptation, "_train_epoch", cut_off)
            with pytest.raises(ZeroDivisionError):
                adapt(teacher=Colours(), log=log)
        with monkeypatch.context() as patched:
            patched.setattr(Adaptation, "_ask_the_teacher", lambda self: 1 / 0)  # its predictions are stored
            resumed = adapt(teacher=Colours(), log=log)
        assert differences(weights(whole), weights(resumed)) == []
        assert resumed.metrics[1]["teacher_weight"] == whole.metrics[1]["teacher_weight"]
    with pytest.raises(UserError, match=r"holds a run with other settings \(inputs.teacher_sha256"):
        adapt(teacher=Colours(factor=9.0), log=log)


def with_nan() -> Colours:
    teacher = Colours()
    teacher.head.weight.data[0, 0] = torch.nan
    return teacher


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"teacher": with_nan()},
            "the `teacher` predicts numbers that are not finite for 36 of 36 images; pass another",
        ),
        ({"teacher": Student()}, "`teacher` is the model itself, which has no second opinion"),
        ({"teacher": Colours((0, 1))}, "the `teacher` has 2 classes, the model 3, and not all of these have a name"),
        ({"teacher": Colours(names=("red", "green", "cyan"))}, "none is named 'blue'; pass a teacher with the classes"),
        (
            {"teacher": nn.Sequential(nn.Flatten(), nn.Linear(7, 3))},
            r"the `teacher` cannot predict images \(8, 3, 8, 8\)",
        ),
        ({"teacher": lambda images: images}, "`teacher` must be a torch.nn.Module, a checkpoint or a run directory"),
        ({"teacher": "nowhere.pth"}, "checkpoint nowhere.pth is not a file"),
        ({"teacher": "hf:nowhere"}, "`teacher` hf:nowhere cannot be loaded"),
        ({"teacher_weight": 1.0}, "`teacher_weight=1.0` has no effect without `teacher`; add it"),
        ({"teacher": Colours(), "teacher_weight": -1.0}, "`teacher_weight` must be at least 0, got -1"),
    ],
)
def test_a_teacher_that_cannot_be_used(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    log = tmp_path / "run"
    with pytest.raises(UserError, match=message):
        adapt(Student(CLASSES), log=str(log), **settings)
    assert not (log / "metrics.jsonl").exists()
    adapt(Student(CLASSES), epochs=1, log=str(log), teacher=Colours())  # the advice leads on in the same folder


def test_tensors_of_another_size() -> None:
    images = torch.randn(IMAGES, 3, SIDE, SIDE)
    with pytest.raises(UserError, match=r"the `teacher` cannot predict images \(8, 3, 8, 8\)"):
        tllib_ancon.adapt(Student(), images, quiet=True, workers=0, teacher=Of())


def test_a_run_is_the_teacher_of_a_command(domains: Path, source_checkpoint: Path, tmp_path: Path, capsys) -> None:
    other = tmp_path / "other"
    assert main(["pretrain", *small_arguments(domains), "--epochs", "3", "--seed", "1", "--log", str(other)]) == 0
    log = tmp_path / "run"
    command = adapt_arguments(domains, source_checkpoint, log, "--teacher", str(other))
    assert main(command) == 0, capsys.readouterr().err
    own = adapt_arguments(domains, source_checkpoint, log, "--teacher", str(log), "--overwrite")
    for words, told in (
        (own, "lies where this run writes its own"),
        ([*command, "--method", "adabn"], "--teacher has"),
    ):
        capsys.readouterr()
        assert main(words) == 2
        error = capsys.readouterr().err
        assert told in error
        assert len(error.splitlines()) == 1


def test_reliability_is_agreement_beyond_chance_times_entropy() -> None:
    diverse = 9 * torch.eye(4)[torch.arange(400) % 4]
    constant = 9 * torch.eye(4)[[0]].expand(400, -1)
    assert reliability(diverse, diverse) == pytest.approx(math.log(4))
    assert reliability(constant, constant) == pytest.approx(0.001)
    assert reliability(diverse, diverse.roll(1, 0)) == pytest.approx(0.001)  # less than by chance
    half = torch.cat([diverse[:200], diverse.roll(2, 0)[200:]])
    assert reliability(diverse, half) == pytest.approx(math.log(4) * (0.5 - 0.25) / 0.75)

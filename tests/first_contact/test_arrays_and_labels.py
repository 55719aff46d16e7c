"""Arrays, labels and outputs in the forms in which people have them."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from torchvision.transforms import ToTensor

import tllib_ancon
from tllib_ancon.cli.main import main
from tllib_ancon.data.open import as_domain
from tllib_ancon.runtime.errors import UserError

NUMBER, CLASSES = 24, 4
HOW: dict[str, Any] = {"norm_mean": (0.5,) * 3, "norm_std": (0.5,) * 3, "image_size": 16}
PIXELS = np.random.default_rng(0).integers(0, 256, (NUMBER, 16, 16, 3), dtype=np.uint8)
LABELS = np.arange(NUMBER) % CLASSES


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, CLASSES)).eval()


def another() -> nn.Module:
    """A network with other predictions."""
    return nn.Sequential(network(), nn.Linear(CLASSES, CLASSES))


class Dividing(nn.Module):
    """A network that divides by the contrast of an image, which is 0 for a grey one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 3, 1)
        self.head = nn.Linear(3, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        contrast = images.std((1, 2, 3), keepdim=True)
        return self.head((self.stem(images) / contrast + 0 / contrast).mean((2, 3)))


def with_a_black_image() -> np.ndarray:
    pixels = PIXELS.copy()
    pixels[7] = 0
    return pixels


class Opened(Mapping[str, Any]):
    """A mapping of another library, such as an open HDF5 file."""

    def __init__(self, **arrays: Any):
        self.arrays = arrays

    def __getitem__(self, key: str) -> Any:
        return self.arrays[key]

    def __iter__(self) -> Any:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)


def write_npz(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


def write_pt(folder: Path, content: Any) -> Path:
    torch.save(content, folder / "a.pt")
    return folder / "a.pt"


PLANES = torch.from_numpy(PIXELS).movedim(3, 1)


@pytest.mark.parametrize(
    "pack",
    [
        lambda folder: write_npz(folder, images=PIXELS, labels=LABELS),
        lambda folder: write_npz(folder, x=PIXELS, y=LABELS, names=np.array(["a", "b"])),
        lambda folder: write_npz(folder, arr_0=PIXELS, arr_1=LABELS),
        lambda folder: write_npz(folder, anything=PIXELS, labels=LABELS),
        lambda folder: np.load(write_npz(folder, data=PIXELS, targets=LABELS)),
        lambda folder: {"image": PIXELS, "label": LABELS},
        lambda folder: Opened(images=PIXELS, labels=torch.from_numpy(LABELS)),
        lambda folder: (PIXELS, LABELS),
        lambda folder: write_pt(folder, (PLANES, torch.from_numpy(LABELS))),
        lambda folder: write_pt(folder, {"X": PLANES, "Y": torch.from_numpy(LABELS)}),
    ],
)
def test_images_and_labels_in_one_object(tmp_path: Path, pack: Any) -> None:
    images = pack(tmp_path)
    expected = tllib_ancon.predict(network(), PIXELS, **HOW).probabilities
    assert tllib_ancon.predict(network(), images, **HOW).probabilities == pytest.approx(expected, abs=1e-6)
    domain = as_domain(images)
    assert (domain.labels.tolist(), as_domain(images, labels=False).labels) == (LABELS.tolist(), None)


def test_an_npz_is_adapted_to_and_its_labels_score(tmp_path: Path) -> None:
    file = write_npz(tmp_path, images=PIXELS, labels=LABELS)
    result = tllib_ancon.adapt(network(), file, epochs=1, quiet=True, **HOW)
    expected = tllib_ancon.adapt(network(), PIXELS, labels=LABELS, epochs=1, quiet=True, **HOW)
    assert result.metrics[1]["accuracy"] == expected.metrics[1]["accuracy"]
    np.save(tmp_path / "x.npy", PIXELS)
    assert tllib_ancon.predict(network(), tmp_path / "x.npy", **HOW).labels.shape == (NUMBER,)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"train_images": PIXELS, "train_labels": LABELS, "test_images": PIXELS},
            "several sets: train_.*images=arrays",
        ),
        ({"x_train": PIXELS, "y_train": LABELS}, r"labels=arrays\['y_train'\]"),
        ({"left": PIXELS, "right": PIXELS}, r"no name says which array .*: left \(24, 16, 16, 3\), right"),
        ({"images": PIXELS, "image": PIXELS}, "no name says"),
    ],
)
def test_arrays_that_could_be_several_things(tmp_path: Path, arrays: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        tllib_ancon.predict(network(), write_npz(tmp_path, **arrays), **HOW)
    (tmp_path / "a.h5").touch()
    with pytest.raises(UserError, match=r"a\.h5: files \.h5 are not read here; open it in Python and pass"):
        tllib_ancon.predict(network(), tmp_path / "a.h5", **HOW)


def test_arrays_of_a_model_with_several_inputs_stay_by_name_without_labels() -> None:
    class TwoInputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(5, CLASSES)

        def forward(self, features: torch.Tensor, age: torch.Tensor) -> torch.Tensor:
            return self.head(torch.cat([features, age[:, None]], 1))

    arrays = {"features": np.random.rand(NUMBER, 4).astype(np.float32), "age": np.arange(NUMBER, dtype=np.float32)}
    probabilities = tllib_ancon.predict(TwoInputs(), {**arrays, "labels": LABELS}).probabilities
    assert probabilities.shape == (NUMBER, CLASSES)


def test_settings_without_effect_on_tensors_are_errors() -> None:
    tensors = [ToTensor()(pixels) for pixels in PIXELS]
    for images in (tensors, torch.stack(tensors), TensorDataset(torch.stack(tensors))):
        for name, value in HOW.items():
            message = f"`{name}` has no effect on tensors of floats"
            for call in (tllib_ancon.predict, tllib_ancon.adapt, tllib_ancon.assess):
                with pytest.raises(UserError, match=message):
                    call(network(), images, **{name: value})
            with pytest.raises(UserError, match=message):
                tllib_ancon.certify(network(), network(), images, **{name: value})
    with pytest.raises(UserError, match="`padding` has no effect on tensors"):
        tllib_ancon.adapt(network(), torch.stack(tensors), padding=4)
    with pytest.raises(UserError, match="`norm_mean` has no effect beside `evaluation_transform`"):
        tllib_ancon.predict(network(), PIXELS, evaluation_transform=ToTensor(), norm_mean=(0.5,) * 3)


def test_an_image_without_finite_output_has_no_class() -> None:
    predictions = tllib_ancon.predict(Dividing(), with_a_black_image(), **HOW)
    assert np.isnan(predictions.probabilities[7]).all()
    assert np.flatnonzero(predictions.labels < 0).tolist() == [7]
    assert predictions.class_prior.sum() == pytest.approx(1)
    assert "1 without a class: the model's output is not finite" in repr(predictions)
    assert "nan" not in repr(predictions)
    nothing = tllib_ancon.predict(Dividing(), np.zeros_like(PIXELS), **HOW)
    assert ({*nothing.labels.tolist()}, nothing.class_prior.tolist()) == ({-1}, [0.0] * CLASSES)
    assert f"{NUMBER} without a class" in repr(nothing)


@pytest.mark.parametrize("method", ["ancon-auto", "ancon", "shot"])
def test_the_error_of_an_adaptation_names_the_image(method: str) -> None:
    with pytest.raises(UserError, match=r"source model's logits are not finite on 1 of 24 images: image 7. Leave"):
        tllib_ancon.adapt(Dividing(), with_a_black_image(), method=method, epochs=1, quiet=True, **HOW)
    with pytest.raises(UserError, match="not finite on any image: its weights are damaged"):
        tllib_ancon.adapt(Dividing(), np.zeros_like(PIXELS), method="ancon", epochs=1, quiet=True, **HOW)


class Masking(nn.Module):
    """A network that masks its last class."""

    def __init__(self, value: float):
        super().__init__()
        self.network = network()
        self.value = value

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        is_last = torch.arange(CLASSES, device=images.device) == CLASSES - 1
        return self.network(images).masked_fill(is_last, self.value)


def test_a_class_masked_by_infinity_is_an_error_whose_advice_leads_on() -> None:
    with pytest.raises(UserError, match=r"not finite on any image: .* masks classes by infinity. .* mask by -1000"):
        tllib_ancon.adapt(Masking(-torch.inf), PIXELS, epochs=1, quiet=True, **HOW)
    result = tllib_ancon.adapt(Masking(-1000), PIXELS, epochs=1, quiet=True, **HOW)
    assert CLASSES - 1 not in tllib_ancon.predict(result.model, PIXELS, **HOW).labels


def test_the_first_image_may_be_the_one_without_output() -> None:
    first = with_a_black_image()[7:]
    for method in ("ancon-auto", "shot"):
        with pytest.raises(UserError, match=r"not finite on 1 of 17 images: image 0. Leave"):
            tllib_ancon.adapt(Dividing(), first, method=method, epochs=1, quiet=True, **HOW)


def test_assess_and_certify_name_the_image() -> None:
    message = "logits are not finite on 1 of 24 images: image 7"
    with pytest.raises(UserError, match=message):
        tllib_ancon.assess(Dividing(), with_a_black_image(), **HOW)
    with pytest.raises(UserError, match=f"the adapted model's {message}"):
        tllib_ancon.certify(network(), Dividing(), with_a_black_image(), **HOW)


def adapted(labels: Any, **settings: Any) -> Any:
    return tllib_ancon.adapt(network(), PIXELS, labels=labels, epochs=1, **HOW, **settings)


def test_labels_that_count_from_one_are_told(capfd: Any) -> None:
    line = "no label is 0: they range from 1 to 3, and the model has the classes 0 to 3; if the labels count from 1"
    adapted(LABELS % 3 + 1)
    assert line in capfd.readouterr().err
    adapted(LABELS)
    assert "no label is 0" not in capfd.readouterr().err
    with pytest.raises(UserError, match=r"labels range from 1 to 4; .* if they count from 1, subtract 1"):
        adapted(LABELS + 1)
    with pytest.raises(UserError, match=r"labels range from -1 to 2; .* leave out the images whose label is unknown"):
        adapted(LABELS - 1)
    adapted(None, answers=LABELS % 3 + 1, teach=0.5)
    assert line in capfd.readouterr().err
    tllib_ancon.certify(network(), another(), PIXELS, labels=LABELS % 3 + 1, **HOW)
    assert line in capfd.readouterr().err


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.eye(CLASSES)[LABELS], r"labels are float64 of shape \(24, 4\), one-hot rows; pass .*labels\.argmax\(1\)"),
        (torch.eye(CLASSES, dtype=torch.int64)[LABELS], r"one-hot rows; pass .*labels\.argmax\(1\)"),
        (LABELS.astype(float), r"labels are float64 of shape \(24,\); pass whole numbers, labels\.astype\(int\)"),
        (LABELS[:, None], r"pass one number for each image, labels\[:, 0\]"),
        (["cat"] * NUMBER, "labels are text, 'cat' first, and the names of the classes are not known; pass numbers"),
    ],
)
def test_labels_in_other_forms_get_a_message_about_labels(labels: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        adapted(labels, quiet=True)
    with pytest.raises(UserError, match=message.replace("labels are", "are")):
        tllib_ancon.certify(network(), another(), PIXELS, labels=labels, **HOW)


def test_text_labels_are_matched_to_names_of_classes() -> None:
    domain = as_domain(PIXELS[:3], labels=["dog", "cat", "dog"], classes=["cat", "dog"])
    assert domain.labels.tolist() == [1, 0, 1]
    with pytest.raises(UserError, match=r"unknown class in .*labels: 'dgo'; did you mean 'dog'"):
        as_domain(PIXELS[:1], labels=["dgo"], classes=["cat", "dog"])


def test_the_csv_of_an_image_without_finite_output(tmp_path: Path) -> None:
    from PIL import Image

    for number, pixels in enumerate(with_a_black_image()[:8]):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    torch.save(Dividing().state_dict(), tmp_path / "net.pth")
    flags = f"--checkpoint {tmp_path}/net.pth --model {__name__}:Dividing --out {tmp_path}/p.csv --image-size 16"
    flags += " --norm-mean 0.5 0.5 0.5 --norm-std 0.5 0.5 0.5"
    assert main(["predict", str(tmp_path), *flags.split()]) in (0, 1)
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert (rows[7]["class"], rows[7]["error"]) == ("", "the model's output is not finite")
    assert all(row["class"] for row in rows[:7])

"""Arrays, labels and outputs are taken in the forms in which people have them; a form that is unclear is one line."""

import csv

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import Compose, Resize, ToTensor

import tllib_ancon
from tests.support.networks import CLASSES, HALVES, Net, Returns
from tests.support.networks import PIXELS as ALL_PIXELS
from tests.support.refusals import one_line
from tllib_ancon.cli.main import main

NUMBER = 24
SETTINGS = {**HALVES, "image_size": 16}
HOW = {**SETTINGS, "workers": 0}
QUICK = {**HOW, "epochs": 1, "quiet": True}
PIXELS = np.ascontiguousarray(ALL_PIXELS[:NUMBER, ::2, ::2])


def negated():
    """A network with other predictions."""
    model = Net()
    model.head.weight.data.neg_()
    model.head.bias.data.neg_()
    return model


# Forms of arrays


def test_what_stands_around_a_network_says_what_to_pass():
    result = tllib_ancon.adapt(Net(), PIXELS, **QUICK)
    for model, advice in [
        (
            result,
            "^`model` must be a torch.nn.Module, not of type AdaptationResult; pass the network itself, with its "
            "weights, and "
            "after it the images$",
        ),
        (Net().state_dict(), "pass the network itself, with its weights"),
        (Net, "pass the network itself"),
    ]:
        for function in (tllib_ancon.adapt, tllib_ancon.predict):
            with one_line(advice):
                function(model, PIXELS, **HOW)


TENSORS_OF_FLOATS = torch.zeros(NUMBER, 3, 16, 16)


@pytest.mark.parametrize("call", [tllib_ancon.adapt, tllib_ancon.check, tllib_ancon.predict])
def test_settings_without_effect_on_tensors_are_errors(call):
    for name, value in SETTINGS.items():
        with one_line(f"`{name}` has no effect on tensors of floats"):
            call(Net(), TENSORS_OF_FLOATS, **{name: value})


def certify(model, images, adapted=None, **settings):
    return tllib_ancon.certify(model, adapted or negated(), images, **settings)


def test_a_setting_beside_a_transform_that_replaces_it_is_an_error():
    with one_line("`norm_mean` has no effect beside `evaluation_transform`"):
        tllib_ancon.predict(Net(), PIXELS, evaluation_transform=ToTensor(), norm_mean=(0.5,) * 3)
    transforms = {"train_transform": ToTensor(), "evaluation_transform": ToTensor()}
    with one_line("`padding` has no effect beside `evaluation_transform`"):
        tllib_ancon.check(Net(), PIXELS, **transforms, padding=4)


# Outputs that are not finite


class Dividing(Net):
    """A network that divides by the contrast of an image, which is 0 for a grey one."""

    def forward(self, images):
        contrast = images.std((1, 2, 3), keepdim=True)
        return super().forward(images / contrast + 0 / contrast)


WITH_A_BLACK_IMAGE = PIXELS.copy()
WITH_A_BLACK_IMAGE[7] = 0


def test_an_image_without_finite_output_has_no_class():
    predictions = tllib_ancon.predict(Dividing(), WITH_A_BLACK_IMAGE, **HOW)
    assert np.isnan(predictions.probabilities[7]).all()
    assert np.flatnonzero(predictions.labels < 0).tolist() == [7]
    assert "1 without a class: the model's output is not finite" in repr(predictions)
    assert "nan" not in repr(predictions)
    nothing = tllib_ancon.predict(Dividing(), np.zeros_like(PIXELS), **HOW)
    assert {*nothing.labels.tolist()} == {-1}
    assert f"{NUMBER} without a class" in repr(nothing)


def test_the_error_of_an_adaptation_names_the_image():
    with one_line(
        "^the source model's logits are not finite on 1 of 24 images: image 7; leave these images out, or mend the "
        "network where it divides by 0$"
    ):
        tllib_ancon.adapt(Dividing(), WITH_A_BLACK_IMAGE, **QUICK)


def test_certify_names_the_image():
    with one_line("the adapted model's logits are not finite on 1 of 24 images: image 7"):
        certify(Net(), WITH_A_BLACK_IMAGE, Dividing(), **HOW)


def masking(value):
    """A network that masks its last class."""
    is_last = torch.arange(CLASSES) == CLASSES - 1
    return Returns(lambda features, logits: logits.masked_fill(is_last.to(logits.device), value))


NOT_FINITE = (
    "^the source model's logits are not finite on any image: its weights are damaged, a transform returns NaN, or its "
    "forward masks classes by infinity; give another checkpoint, repair the transform, or mask by -1000$"
)


def test_a_class_masked_by_infinity_is_an_error_whose_advice_leads_on():
    names = {"class_names": ["a", "b", "c", "d"]}
    with one_line(NOT_FINITE):
        tllib_ancon.adapt(masking(-torch.inf), PIXELS, **QUICK, **names)
    result = tllib_ancon.adapt(masking(-1000), PIXELS, **QUICK, **names)
    assert CLASSES - 1 not in tllib_ancon.predict(result.model, PIXELS, **HOW, **names).labels


def test_the_csv_of_an_image_without_finite_output(tmp_path):
    for number, pixels in enumerate(WITH_A_BLACK_IMAGE[:8]):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    torch.save(Dividing().state_dict(), tmp_path / "net.pth")
    flags = f"--checkpoint {tmp_path}/net.pth --model {__name__}:Dividing --out {tmp_path}/p.csv --image-size 16"
    flags += " --norm-mean 0.5 0.5 0.5 --norm-std 0.5 0.5 0.5"
    assert main(["predict", str(tmp_path), *flags.split()]) in (0, 1)
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert rows[7]["class"] == ""
    assert rows[7]["error"] == "the model's output is not finite"
    assert all(row["class"] for row in rows[:7])


def broken(image):
    raise FileNotFoundError("mean.npy")


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (Resize(16), r"item 0: the transform returns Image; it must return a tensor \(C, H, W\)"),
        (Compose([Resize(16), ToTensor()]), r"must return tensors \(C, H, W\) of one size.*equal size"),
        (broken, r"item 0: the transform raises FileNotFoundError \(mean\.npy\); repair it"),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_that_makes_no_batch_gets_one_line(transform, message, workers):
    photos = [Image.new("RGB", (20 + number, 24)) for number in range(NUMBER)]
    with one_line(message):
        tllib_ancon.predict(Net(), photos, evaluation_transform=transform, workers=workers)
    with one_line(message):
        tllib_ancon.adapt(Net(), photos, evaluation_transform=transform, train_transform=transform, workers=workers)
    whole = Compose([Resize((16, 16)), ToTensor()])  # as the message advises
    assert len(tllib_ancon.predict(Net(), photos, evaluation_transform=whole, workers=workers).labels) == NUMBER

"""Inputs that are not images, and models with one logit."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import tllib_ancon
from tllib_ancon.cli.main import main
from tllib_ancon.data.open import as_domain
from tllib_ancon.runtime.errors import UserError

QUICK = {"epochs": 3, "workers": 0, "threads": 1, "quiet": True, "batch_size": 64}


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (N, 64), the same after a shift of contrast and noise, and the classes."""
    found = load_digits()
    features = (found.data / 16).astype(np.float32)
    noise = np.random.default_rng(0).normal(0, 0.25, features.shape).astype(np.float32)
    return features, 0.35 * features + 0.4 + 0.5 * noise, found.target


def trained(outputs: int = 10) -> nn.Module:
    """A network on the features; with one output it tells classes below 5 from the others."""
    features, _, labels = digits()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, outputs))
    optimizer, inputs = torch.optim.Adam(model.parameters(), 0.01), torch.from_numpy(features)
    goal = torch.from_numpy(labels)
    for _ in range(60):
        logits = model(inputs)
        if outputs == 1:
            loss = nn.functional.binary_cross_entropy_with_logits(logits[:, 0], (goal >= 5).float())
        else:
            loss = nn.functional.cross_entropy(logits, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def jitter(batch: torch.Tensor) -> torch.Tensor:
    return batch + 0.05 * torch.randn_like(batch)


@pytest.mark.parametrize("method", ["ancon-auto", "ancon", "tent", "adabn"])
def test_features_are_adapted_to_and_accuracy_rises(method: str) -> None:
    _, shifted, labels = digits()
    result = tllib_ancon.adapt(trained(), shifted, labels=labels, method=method, augment=jitter, **QUICK)
    start, end = (epoch["accuracy"] for epoch in (result.metrics[0], result.metrics[-1]))
    assert end > start + 5
    predictions = tllib_ancon.predict(result.model, shifted)
    assert predictions.probabilities.shape == (len(shifted), 10)
    assert predictions.class_prior.sum() == pytest.approx(1, abs=1e-5)


def test_series_are_adapted_to_as_tensors_of_any_shape() -> None:
    model = nn.Sequential(nn.Conv1d(3, 8, 5), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 4))
    series = torch.randn(70, 3, 20)
    result = tllib_ancon.adapt(model, series, augment=jitter, **QUICK)
    assert tllib_ancon.predict(result.model, series).probabilities.shape == (70, 4)


class Tokens(nn.Module):
    """A classifier of tokens, called as those of transformers are."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(100_000, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        weights = attention_mask[..., None].float()
        mean = (self.embedding(input_ids) * weights).sum(1) / weights.sum(1)
        return {"logits": self.head(self.norm(mean))}


def test_arrays_reach_the_model_by_their_names(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, tokens = Tokens().eval(), torch.randint(50_000, 100_000, (80, 12))
    data = {"input_ids": tokens, "attention_mask": (torch.rand(80, 12) > 0.2).long().index_fill(1, torch.tensor(0), 1)}

    def drop_tokens(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        kept = torch.rand(batch["attention_mask"].shape) > 0.1
        return {**batch, "attention_mask": (batch["attention_mask"] * kept).index_fill(1, torch.tensor(0), 1)}

    expected = model(**data)["logits"].softmax(1).detach().numpy()
    np.testing.assert_allclose(tllib_ancon.predict(model, data).probabilities, expected, atol=1e-6)
    result = tllib_ancon.adapt(model, data, augment=drop_tokens, log=str(tmp_path), **QUICK)
    adapted = result.model(**data)["logits"].softmax(1).detach().numpy()
    np.testing.assert_allclose(tllib_ancon.predict(result.model, data).probabilities, adapted, atol=1e-6)
    assert np.abs(adapted - expected).max() > 1e-3
    assert tllib_ancon.assess(model, data, batch_size=16).images == 80
    read = tllib_ancon.predict(Tokens(), data, checkpoint=str(tmp_path), workers=0)
    np.testing.assert_allclose(read.probabilities, adapted, atol=1e-6)
    shorter = {name: array[:, :9] for name, array in data.items()}
    assert tllib_ancon.predict(Tokens(), shorter, checkpoint=str(tmp_path), workers=0).probabilities.shape == (80, 3)


PIXELS = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)


@pytest.mark.parametrize("pixels", [PIXELS, PIXELS[..., 0], PIXELS / 255])
def test_arrays_of_pixels_are_images(pixels: np.ndarray) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    sizes: list[torch.Size] = []
    network.register_forward_pre_hook(lambda module, inputs: sizes.append(inputs[0].shape))
    settings = {"image_size": 16, "norm_mean": [0.5] * 3, "norm_std": [0.5] * 3}
    unread = {"train_resizing": "keep-ratio"}  # they are of training
    tllib_ancon.predict(network, pixels, **settings | unread)
    assert sizes == [(20, 3, 16, 16)]


def test_a_line_says_that_nothing_augments(capsys: pytest.CaptureFixture[str]) -> None:
    tllib_ancon.adapt(trained(), digits()[1][:128], **{**QUICK, "quiet": False, "epochs": 1})
    assert "no augmentation" in capsys.readouterr().err


def test_a_file_of_arrays_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    features, shifted, labels = digits()
    for folder, rows in (("source", features), ("target", shifted)):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "x.npy", rows)
        np.save(tmp_path / folder / "y.npy", labels)
    torch.save(trained().state_dict(), tmp_path / "model.pth")
    (tmp_path / "networks_of_test.py").write_text("from tests.training.test_any_tensor import trained as build\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    common = ["target/x.npy", "-d", "Arrays", "--model", "networks_of_test:build", "-j", "0", "--quiet"]
    assert main(["adapt", *common, "--checkpoint", "model.pth", "--epochs", "1", "--log", "run"]) == 0
    assert main(["predict", *common, "--checkpoint", "run", "--out", "out.csv"]) == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == len(shifted) + 1
    capsys.readouterr()
    assert (
        main(["evaluate", *common, "-t", ".", "--checkpoint", "run", "--also", "source/x.npy", "--json", "scores.json"])
        == 0
    )
    scores = json.loads((tmp_path / "scores.json").read_text())
    before, after = scores["source_accuracy"]["before"], scores["source_accuracy"]["after"]
    assert before > 95 > after
    shown = f"accuracy on the source: {before:.2f} % before adaptation, {after:.2f} % after"
    assert shown in capsys.readouterr().out
    source = as_domain(features, labels=labels)
    found = tllib_ancon.assess(trained(), shifted, checkpoint="run", source=source, batch_size=64)
    assert found.source_accuracy == scores["source_accuracy"]
    assert shown in str(found)


def test_class_frequencies_come_with_an_interval_once_there_are_labels() -> None:
    _, shifted, labels = digits()
    kept = np.flatnonzero((labels < 3) | (np.arange(len(labels)) % 4 == 0))
    model, shifted, labels = trained(), shifted[kept], labels[kept]
    found = tllib_ancon.assess(model, shifted, batch_size=64)
    predicted = tllib_ancon.predict(model, shifted).class_prior
    np.testing.assert_allclose(found.class_prior, predicted, atol=1e-6)
    assert found.class_prior_interval is None
    answered = tllib_ancon.assess(model, shifted, answers=labels, batch_size=64)
    truth = np.bincount(labels, minlength=10) / len(labels)
    np.testing.assert_allclose(answered.class_prior, truth, atol=1e-9)
    np.testing.assert_allclose(answered.class_prior_interval, np.stack([truth, truth], 1), atol=1e-9)


def test_agreement_without_batch_norm_is_of_two_views() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(4 * 36, 3))
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    settings = {"image_size": 8, "norm_mean": [0.5] * 3, "norm_std": [0.5] * 3}
    found = tllib_ancon.assess(network, pixels, **settings)
    one, other = (tllib_ancon.predict(network, pixels[:, :, ::step], **settings).labels for step in (1, -1))
    assert found.indicators["agreement"] == pytest.approx((one == other).mean())


def damaged() -> np.ndarray:
    rows = np.zeros((20, 64), np.float32)
    rows[[3, 11], 5] = np.nan, np.inf
    return rows


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (damaged(), r"NaN or infinity in 2 rows \(3, 11\); remove"),
        (np.full((20, 64), np.nan), r"in 20 rows \(0, 1, 2, 3, 4, and 15 more\)"),
        (torch.from_numpy(damaged()), r"NaN or infinity in 2 rows \(3, 11\)"),
        ({"x": damaged()}, r"dict, x: NaN or infinity in 2 rows \(3, 11\)"),
        ({"x": np.zeros((20, 64)), "y": np.zeros((19, 1))}, r"different lengths \(x 20, y 19\); give"),
        ({"x": ["a", "b"]}, "dict cannot be read as arrays of numbers .* convert text"),
        ({"x": [[1.0], [1.0, 2.0]]}, "pad all rows to one length"),
        (np.array([["a"] * 4] * 20, dtype=object), "is no image"),
        (np.zeros((20, 8, 8), np.int32), r"integers \(int32\)"),
        (torch.zeros(20, 3, 8, 8, dtype=torch.bool), r"integers \(bool\)"),
        (np.zeros(()), r"expected the shape \(N, \.\.\.\)"),
    ],
)
def test_arrays_that_no_model_takes(data: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        tllib_ancon.adapt(trained(), data, log=str(tmp_path / "run"), **QUICK)
    with pytest.raises(UserError, match=message):
        tllib_ancon.predict(trained(), data)
    assert not [*tmp_path.iterdir()]


def test_a_bad_row_of_a_large_array_cannot_be_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tllib_ancon.data.tensors.CHECKED", 0)
    with pytest.raises(UserError, match=r"NaN or infinity in 1 rows \(3\); remove them or fill them in$"):
        tllib_ancon.predict(trained(), damaged(), evaluation_transform=nn.Flatten(0), workers=0)


def squeezed() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 1), nn.Flatten(0))


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 4), nn.Unflatten(1, (2, 2, 1)))


@pytest.mark.parametrize(
    ("rows", "build", "message"),
    [
        (damaged(), "trained", "x.npy: NaN or infinity in 2 rows (3, 11); remove them or fill them in"),
        (np.zeros((20, 64), np.int64), "trained", "features are integers (int64); convert them to float32"),
        (np.zeros((20, 64)).astype(object), "trained", "Python objects in dtype.); save an array of float32"),
        (digits()[0][:40], "squeezed", "gives (2,) of torch.float32 for 2 images where logits (2, K) are expected"),
        (digits()[0][:40], "dense", "gives (2, 2, 2, 1) of torch.float32"),
    ],
)
def test_bad_arrays_end_a_command_with_one_line(
    rows: np.ndarray,
    build: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.save(tmp_path / "x.npy", rows, allow_pickle=True)
    torch.save(globals()[build]().state_dict(), tmp_path / "model.pth")
    monkeypatch.chdir(tmp_path)
    before = {*tmp_path.iterdir()}
    common = ["x.npy", "-d", "Arrays", "--model", f"{__name__}:{build}", "--checkpoint", "model.pth", "-j", "0"]
    for words in (["adapt", *common, "--log", "run"], ["predict", *common, "--out", "out.csv"]):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert {*tmp_path.iterdir()} == before


def test_one_logit_is_adapted_and_certified() -> None:
    _, shifted, labels = digits()
    binary = (labels >= 5).astype(int)
    model = trained(1)
    result = tllib_ancon.adapt(model, shifted, labels=binary, augment=jitter, **QUICK)
    assert result.metrics[-1]["accuracy"] > result.metrics[0]["accuracy"]
    assert result.model(torch.from_numpy(shifted[:4])).shape == (4, 1)
    assert tllib_ancon.predict(result.model, shifted).probabilities.shape == (len(shifted), 2)
    certificate = result.certify(labels=binary).certificate
    assert certificate["verdict"] in ("better", "undecided")
    assert tllib_ancon.assess(model, shifted, batch_size=64).indicators["class_frequencies"]


def test_adabn_changes_a_network_of_another_output() -> None:
    class Segments(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": self.norm(self.first(images))}

    model, images = Segments().double(), torch.randn(40, 3, 8, 8) + 1
    adapt = partial(tllib_ancon.adapt, model, images, workers=0, quiet=True)
    adapted = adapt(method="adabn").model
    assert adapted.norm.running_mean.dtype == torch.float64
    assert not torch.equal(adapted.norm.running_mean, model.norm.running_mean)
    assert torch.equal(adapted.first.weight, model.first.weight)
    learnt = adapt(method="tent", epochs=1, batch_size=8)
    assert not torch.equal(learnt.model.norm.weight, model.norm.weight)
    assert "tent" in str(learnt)
    with pytest.raises(UserError, match="adabn"):
        adapt()


class Masked(nn.Module):
    """It takes features and a mask of bool, which it inverts."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, features: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(features.masked_fill(hidden, 0.0) * (~hidden).any(1, keepdim=True)))


def test_several_arrays_keep_their_types_through_every_function(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Masked().eval()
    arrays = {"features": np.random.default_rng(0).normal(size=(60, 6)), "hidden": np.zeros((60, 6), bool)}
    arrays["hidden"][:, 2] = True
    batch = {"features": torch.from_numpy(arrays["features"]).float(), "hidden": torch.from_numpy(arrays["hidden"])}
    expected = model(**batch).softmax(1).detach().numpy()
    np.testing.assert_allclose(tllib_ancon.predict(model, arrays).probabilities, expected, atol=1e-6)
    run = tmp_path / "run"
    labels = np.arange(60) % 3
    result = tllib_ancon.adapt(model, arrays, log=str(run), teach=0.5, answers=labels, epochs=1, batch_size=16)
    again = tllib_ancon.adapt(model, arrays, log=str(run), teach=0.5, answers=labels, epochs=1, batch_size=16)
    assert again.metrics == result.metrics
    assert json.loads((run / "config.json").read_text())["network"]["images"] == {
        "features": ["float32", 6],
        "hidden": ["bool", 6],
    }
    read = tllib_ancon.predict(Masked(), arrays, checkpoint=str(run)).probabilities
    np.testing.assert_allclose(read, tllib_ancon.predict(result.model, arrays).probabilities, atol=1e-6)
    assert result.certify(labels=labels).certificate["labels"] > 0
    stream = tllib_ancon.online(model, method="tent")
    assert stream(batch).shape == (60, 3)
    with pytest.raises(UserError, match=r"`views=2` mirrors images, and these inputs have shape \{'features': \(6,\)"):
        tllib_ancon.predict(model, arrays, views=2)

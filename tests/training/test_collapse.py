"""Training that collapses stops, and the model before the collapse is handed out."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.small import EPOCHS, adapt, without
from tllib_ancon.training.collapse import Diversity, has_collapsed
from tllib_ancon.training.run import RunDirectory

TOO_HIGH = {"method": "ancon-auto", "lr": 50.0, "step_change": None}
CLASSES = 3


def images() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    centres, labels = torch.randn(CLASSES, 3, 4, 4, generator=generator), torch.arange(48) % CLASSES
    return centres[labels] + 2 * torch.randn(48, 3, 4, 4, generator=generator), labels


@cache
def source_model() -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.ReLU(), nn.Linear(6, CLASSES))
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    inputs, labels = images()
    for _ in range(25):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()
    return network.eval()


def adapted(**settings: Any) -> Any:
    inputs, labels = images()
    return adapt(source_model(), inputs, labels=labels.tolist(), **{**TOO_HIGH, **settings})


def test_the_model_before_the_collapse_is_handed_out_and_a_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    result = adapted(quiet=False)
    last = result.metrics[-1]
    assert last["epoch"] < EPOCHS
    assert last["accuracy"] == result.metrics[-2]["accuracy"]
    assert last["infomax_collapsed"] < 0.9 * result.metrics[0]["infomax"]
    lines = [line for line in capsys.readouterr().err.splitlines() if "collapsed" in line]
    assert len(lines) == 1
    for number in (result.metrics[0]["infomax"], last["infomax_collapsed"]):
        assert f"{number:.2f}" in lines[0]
    inputs, labels = images()
    right = result.model(inputs).argmax(1) == labels
    assert 100 * right.float().mean().item() == pytest.approx(last["accuracy"])


def test_without_labels_the_same_model_is_handed_out() -> None:
    labelled, unlabelled = adapted(), adapt(source_model(), images()[0], labels=False, **TOO_HIGH)
    assert len(labelled.metrics) == len(unlabelled.metrics)
    for name, tensor in labelled.model.state_dict().items():
        torch.testing.assert_close(tensor, unlabelled.model.state_dict()[name])


def test_a_run_that_was_cut_off_after_the_collapse_does_not_train_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(run: RunDirectory, result: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "finish", cut_off)
        with pytest.raises(KeyboardInterrupt):
            adapted(log=tmp_path)
    assert not (tmp_path / "result.json").exists()
    resumed, whole = adapted(log=tmp_path), adapted()
    assert without(resumed.metrics) == without(whole.metrics)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name])


def test_training_that_does_not_collapse_goes_on() -> None:
    assert len(adapted(lr=0.01).metrics) == 1 + EPOCHS


@pytest.mark.parametrize(
    ("classes", "infomax", "collapsed"),
    [(2.0, 0.5, True), (2.0, 1.1, False), (4.0, 0.5, False), (4.0, 1.2, False)],
)
def test_both_numbers_have_to_fall(classes: float, infomax: float, collapsed: bool) -> None:
    assert has_collapsed(Diversity(classes, infomax), Diversity(4.0, 1.0)) == collapsed


def test_diversity_of_predictions() -> None:
    logits = 50 * torch.eye(4)[[0, 0, 1, 1]]
    assert Diversity.of(logits) == pytest.approx((2, torch.tensor(2.0).log().item()))

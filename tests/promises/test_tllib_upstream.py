"""The two files that TLLib is offered: a loss that needs torch alone, and an example script in the form of its own."""

import re
import runpy
import shutil
import subprocess
import sys

import pytest
import torch

from tests.support.layouts import write_list
from tests.support.places import ROOT
from tests.support.tllib import EXAMPLES, requires_checkout, requires_tllib
from tllib_ancon import AnchoredConfidence

OFFERED = ROOT / "examples" / "tllib"
AnchoredConfidenceLoss = runpy.run_path(str(OFFERED / "ancon_loss.py"))["AnchoredConfidenceLoss"]


@pytest.mark.parametrize(("smoothing", "beta"), [(0.3, 0.9), (0.0, 0.5), (1.0, 0.0)])
def test_ten_steps_of_the_loss_are_those_of_anchored_confidence(smoothing, beta):
    torch.manual_seed(0)
    ours = AnchoredConfidence(30, 5, smoothing=smoothing, beta=beta)
    theirs = AnchoredConfidenceLoss(30, 5, smoothing=smoothing, beta=beta)
    for _ in range(10):
        indices = torch.randint(30, (16,))  # some of them twice
        logits = (3 * torch.randn(16, 5)).requires_grad_()
        expected = -(ours(indices, logits) * logits.log_softmax(1)).sum(1).mean()
        loss = theirs(logits, indices)
        torch.testing.assert_close(loss, expected)
        (gradient,) = torch.autograd.grad(loss, logits)
        (expected_gradient,) = torch.autograd.grad(expected, logits)
        torch.testing.assert_close(gradient, expected_gradient)
        torch.testing.assert_close(theirs.threshold, ours.threshold)
    assert torch.equal(theirs.votes.float(), ours.ensemble.votes(torch.arange(30)))
    assert theirs.votes.sum() > 40


def test_what_its_example_shows_runs():
    names = {"torch": torch, "AnchoredConfidenceLoss": AnchoredConfidenceLoss}
    exec("\n".join(re.findall(r">>> (.*)", AnchoredConfidenceLoss.__doc__)), names)
    assert names["y_t"].grad.abs().sum() > 0


@requires_tllib
@requires_checkout
def test_the_script_in_a_checkout(tmp_path):
    checkout = tmp_path / "checkout"
    data = tmp_path / "data"
    log = tmp_path / "log"
    folder = checkout / EXAMPLES.relative_to(EXAMPLES.parents[2])
    shutil.copytree(EXAMPLES.parents[2] / "tllib", checkout / "tllib")
    shutil.copy(OFFERED / "ancon_loss.py", checkout / "tllib" / "self_training")
    folder.mkdir(parents=True)
    shutil.copy(OFFERED / "ancon.py", folder)
    shutil.copy(EXAMPLES / "utils.py", folder)
    data.mkdir()
    for name in ("amazon", "dslr", "webcam"):
        write_list(data, name, images=40, classes=2)
    words = [
        *("script", str(folder / "ancon.py"), str(data), "-d", "Office31", "-s", "A", "-t", "W", "--scratch"),
        *("-a", "resnet18", "-i", "4", "-b", "8", "-j", "0", "--seed", "0", "--log", str(log)),
        *("--train-resizing", "res.", "--val-resizing", "res.", "--resize-size", "32", "--bottleneck-dim", "16"),
    ]

    def run(*more):
        code = "import sys; from tllib_ancon.cli.main import main; sys.exit(main())"
        environment = {"PYTHONPATH": f"{checkout}:{ROOT}", "OMP_NUM_THREADS": "1", "PATH": ""}
        command = [sys.executable, "-c", code, *words, *more]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    said = run("--pretrain-epochs", "1", "--epochs", "2")
    scores = [float(score) for score in re.findall(r"InfoMax (\S+)", said)]
    assert len(scores) == 2
    saved = {name: torch.load(log / "checkpoints" / f"{name}.pth") for name in ("pretrain", "latest", "best")}
    assert torch.equal(saved["pretrain"]["head.weight"], saved["latest"]["head.weight"])
    assert not torch.equal(saved["pretrain"]["bottleneck.0.weight"], saved["latest"]["bottleneck.0.weight"])
    best_is_latest = torch.equal(saved["best"]["bottleneck.0.weight"], saved["latest"]["bottleneck.0.weight"])
    assert best_is_latest == (scores[1] > scores[0])
    tested = re.findall(r"test_acc1 = (\S+)", said)
    assert float(run("--phase", "test").split()[-1]) == pytest.approx(float(tested[0]), abs=0.06)

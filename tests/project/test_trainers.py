"""The recipes for other people's trainers, run as docs/own_loop.md has them."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support.networks import transformer
from tests.support.places import ROOT, blocks_of

PAGE = (ROOT / "docs" / "own_loop.md").read_text()
BLOCKS = blocks_of(PAGE[PAGE.index("## Hugging Face") :], "python")
IMAGES = torch.randn(24, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def run(code, tmp_path, monkeypatch, **names):
    assert len([line for line in code.splitlines() if line]) <= 25
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(code, names)
    return names


def changed(code, *changes):
    for old, new in changes:
        assert code.count(old) == 1
        code = code.replace(old, new)
    return code


@pytest.fixture
def vit():
    return transformer(image_size=16)


QUIET = ('optim="sgd"', 'optim="sgd", report_to="none", save_strategy="no", disable_tqdm=True, use_cpu=True')


def test_hugging_face_trainer(vit, tmp_path, monkeypatch):
    before = {name: value.clone() for name, value in vit.state_dict().items()}
    code = changed(BLOCKS[0], QUIET, ("batch_size=64", "batch_size=8"), ("Trainer(model,", "trainer = Trainer(model,"))
    code = changed(code, (").train()\n", ")\ntrainer.train()\n"))
    names = run(code, tmp_path, monkeypatch, images=IMAGES, model=vit)
    kept = {name for name, value in vit.state_dict().items() if torch.equal(value, before[name])}
    assert kept == {"classifier.weight", "classifier.bias"}
    ancon = names["ancon"]
    votes = ancon.ensemble.votes(torch.arange(24))
    assert votes.sum(1).max() <= 3
    assert votes.sum() > 24
    names["trainer"].evaluate(names["Positions"]())
    assert torch.equal(ancon.ensemble.votes(torch.arange(24)), votes)


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return self.model(pixel_values=images).logits


def test_lightning(vit, tmp_path, monkeypatch):
    pytest.importorskip("lightning", reason="lightning is not installed")
    loader = DataLoader(TensorDataset(torch.arange(24), IMAGES), batch_size=8, shuffle=True)
    quiet = '(max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False)'
    code = changed(
        BLOCKS[1], ("(max_epochs=3).fit(", f"{quiet}.fit("), ("Adaptation(model,", "made := Adaptation(model,")
    )
    before = vit.classifier.weight.clone()
    names = run(code, tmp_path, monkeypatch, images=IMAGES, model=Logits(vit), num_classes=3, loader=loader)
    assert not torch.equal(vit.classifier.weight, before)
    votes = names["made"].ancon.ensemble.votes(torch.arange(24))
    assert 24 < votes.sum() <= 72
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    saved = torch.load(checkpoint, weights_only=False)["state_dict"]
    assert torch.equal(saved["ancon.ensemble.counts"].float(), votes)

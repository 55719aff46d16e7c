"""A model card lies beside each result and stays as its user edits it; libraries read what is written beside it."""

import json
import shutil
from types import SimpleNamespace

import pytest
import timm
import torch
from huggingface_hub import HfApi, ModelCard, PyTorchModelHubMixin
from torch import nn

from tests.end_to_end.killable import differences
from tests.refusals import one_line
from tests.training.small import adapt, network

LABELS = [number % 3 for number in range(24)]
RUN = {"labels": LABELS, "method": "shot-im", "lr": 0.3}


class Mixed(nn.Module, PyTorchModelHubMixin):
    """A user's network with huggingface_hub's own mixin."""

    def __init__(self, width=6):
        super().__init__()
        hidden = nn.Linear(48, width), nn.BatchNorm1d(width)
        self.layers = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, 3))

    def forward(self, images):
        return self.layers(images)


def has_weights_of(model, result):
    return differences(dict(model.state_dict()), dict(result.model.state_dict())) == []


def test_a_pushed_model_is_read_by_its_own_library(tmp_path, monkeypatch):
    def upload(hub, repo_id, folder_path, commit_message):
        shutil.copytree(folder_path, tmp_path / "pushed")
        return f"{hub.endpoint}/{repo_id}: {commit_message}"

    def create(hub, name, **_):
        return SimpleNamespace(repo_id=f"{hub.token}/{name}")

    monkeypatch.setattr(HfApi, "create_repo", create)
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    result = adapt(Mixed(5), log=tmp_path / "run", epochs=1)
    commit = result.push_to_hub("adapted", token="me", endpoint="http://hub")
    assert commit == "http://hub/me/adapted: Adapted by tllib-ancon, ancon"
    pushed = sorted((tmp_path / "pushed").iterdir())
    assert [path.name for path in pushed] == ["README.md", "config.json", "model.safetensors"]
    assert pushed[0].read_bytes() == (tmp_path / "run" / "README.md").read_bytes()
    assert has_weights_of(Mixed.from_pretrained(tmp_path / "pushed"), result)


@pytest.mark.parametrize(
    ("name", "options"),
    [("test_vit", {"img_size": 32, "patch_size": 8, "depth": 1}), ("test_resnet", {"in_chans": 1})],
)
@pytest.mark.parametrize("recorded", [True, False])
def test_a_model_of_timm_is_written_as_timm_does(tmp_path, monkeypatch, name, options, recorded):
    """Also by versions before 1.0.31, which record no options."""
    if not recorded:
        monkeypatch.delattr(timm.models, "get_model_args", raising=False)
    model = timm.create_model(name, num_classes=3, **options)
    result = adapt(model, torch.randn(24, options.get("in_chans", 3), 32, 32), epochs=1)
    result.save_pretrained(tmp_path)
    assert has_weights_of(timm.create_model(f"local-dir:{tmp_path}", pretrained=True), result)
    assert ModelCard.load(tmp_path / "README.md").data.library_name == "tllib-ancon"


def test_a_network_that_no_library_writes(tmp_path):
    with one_line("Sequential has no save_pretrained"):
        adapt(network(), epochs=1).save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_card_has_the_numbers_of_the_run_and_its_certificate(tmp_path):
    result = adapt(log=tmp_path, **RUN)
    page = tmp_path / "README.md"
    start = result.metrics[0]
    selected = result.metrics[result.selected_epoch]
    card = ModelCard.load(page)
    assert f"| accuracy (%) | {start['accuracy']:.2f} | {selected['accuracy']:.2f} |" in card.text
    assert f"| infomax, without labels | {start['infomax']:.4f} | {selected['infomax']:.4f} |" in card.text
    evaluations = {evaluation.metric_type: evaluation.metric_value for evaluation in card.data.eval_results}
    assert evaluations["accuracy"] == selected["accuracy"]
    _, settings, *_ = card.text.split("```")
    assert json.loads(settings.removeprefix("json"))["lr"] == 0.3
    assert "## Certificate" not in card.text
    session = result.certify(LABELS, workers=0)
    assert str(session).splitlines()[0] in page.read_text()


def test_the_card_of_a_run_without_labels(tmp_path):
    result = adapt(labels=False, log=tmp_path, epochs=1)
    card = (tmp_path / "README.md").read_text()
    assert "| accuracy" not in card
    assert result.summary["method"] in card


def test_a_card_that_a_user_edited_stays(tmp_path, capsys):
    page = tmp_path / "README.md"
    result = adapt(log=tmp_path, **RUN)
    result.certify(LABELS, workers=0)
    adapt(log=tmp_path, **RUN)
    assert "## Certificate" in page.read_text()
    assert "README.md" not in capsys.readouterr().err
    page.write_text("mine")
    (tmp_path / "certificate.json").unlink()
    result.certify(LABELS, workers=0)
    adapt(log=tmp_path, **RUN)
    assert page.read_text() == "mine"
    shown = [line for line in capsys.readouterr().err.splitlines() if "README.md" in line]
    assert shown == [f"{page} has changed since tllib-ancon wrote it and stays; remove it to get a new one"] * 2
    page.unlink()
    adapt(log=tmp_path, **RUN)
    assert "## Certificate" in page.read_text()

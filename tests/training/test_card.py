"""The model card beside a result, and the way to a model hub."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import timm
import torch
from huggingface_hub import HfApi, ModelCard, PyTorchModelHubMixin
from torch import Tensor, nn

from tests.training.small import adapt, network
from tllib_ancon.runtime.errors import UserError

IMAGES = torch.randn(24, 3, 32, 32, generator=torch.Generator().manual_seed(0))


class Mixed(nn.Module, PyTorchModelHubMixin):
    """A user's network with huggingface_hub's own mixin."""

    def __init__(self, width: int = 6):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(48, width), nn.BatchNorm1d(width), nn.Linear(width, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def test_a_pushed_model_is_read_by_its_own_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def upload(hub: HfApi, repo_id: str, folder_path: str, commit_message: str) -> str:
        shutil.copytree(folder_path, tmp_path / "pushed")
        return f"{hub.endpoint}/{repo_id}: {commit_message}"

    monkeypatch.setattr(HfApi, "create_repo", lambda hub, name, **_: SimpleNamespace(repo_id=f"{hub.token}/{name}"))
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    result = adapt(Mixed(5), log=tmp_path / "run", epochs=1)
    commit = result.push_to_hub("adapted", token="me", endpoint="http://hub")
    assert commit == "http://hub/me/adapted: Adapted by tllib-ancon, ancon"
    pushed = sorted((tmp_path / "pushed").iterdir())
    assert [path.name for path in pushed] == ["README.md", "config.json", "model.safetensors"]
    assert pushed[0].read_bytes() == (tmp_path / "run" / "README.md").read_bytes()
    again = Mixed.from_pretrained(tmp_path / "pushed")
    assert all(torch.equal(tensor, again.state_dict()[key]) for key, tensor in result.model.state_dict().items())


def test_a_model_of_timm_is_written_as_timm_does(tmp_path: Path) -> None:
    model = timm.create_model("test_vit", img_size=32, patch_size=8, num_classes=3)
    result = adapt(model, IMAGES, epochs=1)
    result.save_pretrained(tmp_path / "model")
    again = timm.create_model(f"local-dir:{tmp_path / 'model'}", pretrained=True)
    assert all(torch.equal(tensor, again.state_dict()[key]) for key, tensor in result.model.state_dict().items())
    assert ModelCard.load(tmp_path / "model" / "README.md").data.library_name == "tllib-ancon"


def test_a_network_that_no_library_writes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Sequential has no save_pretrained"):
        adapt(network(), epochs=1).save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_card_has_the_numbers_of_the_run_and_its_certificate(tmp_path: Path) -> None:
    labels = [number % 3 for number in range(24)]
    result = adapt(labels=labels, log=tmp_path, method="shot-im", lr=0.3)
    page, start, selected = tmp_path / "README.md", result.metrics[0], result.metrics[result.selected_epoch]
    card = ModelCard.load(page)
    assert f"| accuracy (%) | {start['accuracy']:.2f} | {selected['accuracy']:.2f} |" in card.text
    assert f"| infomax, without labels | {start['infomax']:.4f} | {selected['infomax']:.4f} |" in card.text
    found = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert found["accuracy"] == selected["accuracy"]
    assert json.loads(card.text.split("```json")[1].split("```")[0])["lr"] == 0.3
    assert "## Certificate" not in card.text
    session = result.certify(labels, workers=0)
    assert str(session).splitlines()[0] in page.read_text()
    unlabelled = adapt(labels=False, log=tmp_path / "unlabelled", epochs=1)
    assert "| accuracy" not in (tmp_path / "unlabelled" / "README.md").read_text()
    assert unlabelled.summary["method"] in (tmp_path / "unlabelled" / "README.md").read_text()


def test_a_card_that_a_user_edited_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels, page = [number % 3 for number in range(24)], tmp_path / "README.md"
    result = adapt(labels=labels, log=tmp_path, method="shot-im", lr=0.3)
    result.certify(labels, workers=0)
    adapt(labels=labels, log=tmp_path, method="shot-im", lr=0.3)
    assert "## Certificate" in page.read_text()
    assert "README.md" not in capsys.readouterr().err
    page.write_text("mine")
    (tmp_path / "certificate.json").unlink()
    result.certify(labels, workers=0)
    adapt(labels=labels, log=tmp_path, method="shot-im", lr=0.3)
    assert page.read_text() == "mine"
    shown = capsys.readouterr().err.splitlines()
    assert [line for line in shown if "README.md" in line] == [
        f"{page} has changed since tllib-ancon wrote it and stays; remove it to get a new one"
    ] * 2
    page.unlink()
    adapt(labels=labels, log=tmp_path, method="shot-im", lr=0.3)
    assert "## Certificate" in page.read_text()

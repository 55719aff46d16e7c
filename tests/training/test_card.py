"""The model card beside a result, and the way to a model hub."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from huggingface_hub import ModelCard, PyTorchModelHubMixin
from torch import Tensor, nn

from tests.training.small import adapt, network
from tllib_ancon.errors import UserError

IMAGES = torch.randn(24, 3, 32, 32, generator=torch.Generator().manual_seed(0))


class Mixed(nn.Module, PyTorchModelHubMixin):
    """A user's network with huggingface_hub's own mixin."""

    def __init__(self, width: int = 6):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(48, width), nn.BatchNorm1d(width), nn.Linear(width, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


class Hub(HTTPServer):
    """The part of a hub that a repository and a commit need; it remembers the files of the last commit."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(self.path)
        repository = f"http://127.0.0.1:{self.server.server_port}/me/adapted"
        told: dict[str, Any] = {"url": repository, "commitUrl": f"{repository}/commit/1", "commitOid": "1"}
        if self.path.endswith("/preupload/main"):
            names = [file["path"] for file in json.loads(body)["files"]]
            told = {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}
        elif self.path.endswith("/commit/main"):
            entries = [json.loads(line)["value"] for line in body.splitlines()]
            self.server.files = {entry["path"]: base64.b64decode(entry["content"]) for entry in entries[1:]}
        self.reply(told)

    def do_GET(self) -> None:
        self.reply({"id": "me/adapted", "sha": "0", "siblings": []})

    def reply(self, told: dict[str, Any]) -> None:
        content = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    yield hub
    hub.shutdown()


def test_a_pushed_model_is_read_by_its_own_library(hub: Hub, tmp_path: Path) -> None:
    result = adapt(Mixed(5), log=tmp_path / "run", epochs=1)
    address = f"http://127.0.0.1:{hub.server_port}"
    assert result.push_to_hub("me/adapted", token="hf_x", endpoint=address)
    assert hub.asked[0] == "/api/repos/create"
    assert sorted(hub.files) == ["README.md", "config.json", "model.safetensors"]
    assert hub.files["README.md"] == (tmp_path / "run" / "README.md").read_bytes()
    for name, content in hub.files.items():
        (tmp_path / name).write_bytes(content)
    again = Mixed.from_pretrained(tmp_path)
    assert all(torch.equal(tensor, again.state_dict()[key]) for key, tensor in result.model.state_dict().items())


def test_a_model_of_timm_is_written_as_timm_does(tmp_path: Path) -> None:
    model = timm.create_model("test_vit", img_size=32, patch_size=8, num_classes=3)
    result = adapt(model, IMAGES, epochs=1)
    result.save_pretrained(tmp_path / "model")
    again = timm.create_model(f"local-dir:{tmp_path / 'model'}", pretrained=True)
    assert all(torch.equal(tensor, again.state_dict()[key]) for key, tensor in result.model.state_dict().items())
    assert ModelCard.load(tmp_path / "model" / "README.md").data.library_name == "tllib-ancon"


def test_a_network_that_no_library_writes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Sequential has no `save_pretrained`"):
        adapt(network(), epochs=1).save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_card_has_the_numbers_of_the_run_and_its_certificate(tmp_path: Path) -> None:
    labels = [number % 3 for number in range(24)]
    result = adapt(labels=labels, log=tmp_path, method="shot-im", lr=0.3)
    page, start, selected = tmp_path / "README.md", result.metrics[0], result.metrics[result.selected_epoch]
    card = ModelCard.load(page)
    assert f"| accuracy (%) | {start['accuracy']:.2f} | {selected['accuracy']:.2f} |" in card.text
    assert f"| infomax, without labels | {start['infomax']:.4f} | {selected['infomax']:.4f} |" in card.text
    assert {found.metric_type: found.metric_value for found in card.data.eval_results}["accuracy"] == selected[
        "accuracy"
    ]
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

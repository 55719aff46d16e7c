"""Models of transformers and open_clip are adapted by their names, and no code of their folders runs."""

import csv
import io
import json
import socket
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tests.support.domains_on_disk import CLASSES, write_domain
from tests.support.json_files import read_json
from tests.support.networks import transformer
from tests.support.refusals import REFUSED
from tllib_ancon.cli.main import main

transformers = pytest.importorskip("transformers", reason="the extra foundation is not installed")
open_clip = pytest.importorskip("open_clip", reason="the extra foundation is not installed")
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
CLIP = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 8, "head_width": 32},
    "text_cfg": TEXT,
}
MEAN = [0.5, 0.4, 0.3]
STD = [0.2, 0.25, 0.3]
NAMES = dict(enumerate(CLASSES))
DATA = ["-d", "ImageFolder", "-t", "dark", "-j", "0", "--quiet"]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """``data/dark/<class>/*`` of twelve images, beside which the models lie."""
    (tmp_path / "data").mkdir()
    write_domain(tmp_path / "data", "dark", 12, seed=1, side=40)
    (tmp_path / "names.txt").write_text("\n".join(CLASSES))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def vit(folder, **settings):
    model = transformer(**{"id2label": NAMES, **settings})
    model.classifier.weight.data *= 100  # so that images are of several classes
    size = {"height": 32, "width": 32}
    processor = transformers.ViTImageProcessor(size=size, image_mean=MEAN, image_std=STD)
    for part in (model, processor):
        part.save_pretrained(folder)
    return model


def clip(folder):
    torch.manual_seed(0)
    model = open_clip.CLIP(**CLIP)
    folder.mkdir()
    cfg = {"mean": MEAN, "std": STD, "interpolation": "bilinear", "resize_mode": "squash"}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": CLIP, "preprocess_cfg": cfg}))
    torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")
    return model.eval()


def rows(path):
    """File -> the probabilities of the classes in the order of their names."""
    with open(path, newline="") as file:
        table = [*csv.DictReader(file)]
    probabilities = {}
    for row in table:
        probabilities[row["path"]] = [float(row[f"probability_{name}"]) for name in CLASSES]
    return probabilities


def told(images, prepare, logits):
    """The probabilities by the library's own processing and model."""
    batch = torch.stack([prepare(Image.open(path)) for path in images])
    with torch.no_grad():
        return logits(batch).softmax(1).numpy()


def test_a_folder_of_transformers_predicts_what_its_library_predicts(data):
    model = vit(data / "model")
    assert main(["predict", "data", "-a", "hf:model", "-j", "0", "--probabilities", "--out", "start.csv"]) == 0
    processor = transformers.AutoImageProcessor.from_pretrained("model")
    found = rows("start.csv")
    prepare = lambda image: processor(image, return_tensors="pt")["pixel_values"][0]  # noqa: E731
    expected = told(list(found), prepare, lambda images: model(images).logits)
    assert len({*expected.argmax(1)}) > 1
    np.testing.assert_allclose(list(found.values()), expected, atol=0.06)  # they resize by other code


def test_open_clip_starts_zero_shot(data, capsys):
    model = clip(data / "model")
    spoken = ["red", "dark green", "blue"]
    (data / "names.txt").write_text("red\ndark_green\nblue\n")
    chosen = ["-a", "open_clip:model", "--class-names", "names.txt"]
    words = ["predict", "data", *chosen, "-j", "0", "--probabilities", "--out", "start.npz"]
    assert main(words) == 0, capsys.readouterr().err
    texts = [f"a photo of a {name}." for name in spoken]
    with torch.no_grad():
        embeddings = nn.functional.normalize(model.encode_text(open_clip.tokenize(texts)), dim=1)
    resized = {"mean": MEAN, "std": STD, "resize_mode": "squash", "interpolation": "bilinear"}
    written = np.load("start.npz")
    assert written["classes"].tolist() == ["red", "dark_green", "blue"]

    def logits(images):
        return model.logit_scale.exp() * model.encode_image(images, normalize=True) @ embeddings.T

    expected = told(written["paths"].tolist(), open_clip.image_transform(32, False, **resized), logits)
    np.testing.assert_allclose(written["probabilities"], expected, atol=1e-5)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    clip(folder / "clip")
    vit(folder / "vit")
    vit(folder / "nameless", num_labels=2, id2label=None)
    vit(folder / "headless").vit.save_pretrained(folder / "headless")
    vit(folder / "sizeless")
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"longest_edge": 32}}
    (folder / "sizeless" / "preprocessor_config.json").write_text(json.dumps(processor))
    (folder / "two.txt").write_text("red\ngreen\n")
    (folder / "twice.txt").write_text("red\ngreen\nred\n")
    (folder / "names.txt").write_text("\n".join(CLASSES))
    (folder / "data").mkdir()
    write_domain(folder / "data", "dark", 12, seed=1, side=40)
    return folder


@pytest.mark.parametrize(("words", "message"), REFUSED["named models"], ids=str)
def test_what_cannot_be_used_is_refused_in_one_line(words, message, models, monkeypatch, capsys, caplog):
    monkeypatch.chdir(models)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("it asks for an address"))
    assert main(["adapt", "data", *DATA, *words, "--log", "never"]) == 2
    error = capsys.readouterr().err
    assert message in error.splitlines()[-1]
    assert "ERROR" not in caplog.text
    assert "Traceback" not in error
    assert not (models / "never").exists()


CODE = {name: f"code.{name}" for name in ("AutoConfig", "AutoModelForImageClassification", "AutoModel")}


def with_code(data, kind):
    """A folder that its library loads by running the folder's ``code.py``, which writes a file ``ran``; its flags."""
    folder = data / "model"
    config = {"model_type": "strange", "architectures": ["Strange"], "auto_map": CODE}
    if kind == "hf":
        vit(folder)
        (folder / "config.json").write_text(json.dumps(config))
    elif kind == "hf, processor":
        vit(folder)
        (folder / "preprocessor_config.json").write_text(
            json.dumps({"auto_map": {"AutoImageProcessor": "code.Model"}, "image_processor_type": "Own"})
        )
    else:
        clip(folder)
        text = {"hf_model_name": str(folder), "hf_model_pretrained": False}
        if kind == "open_clip, tokenizer":
            text = {**TEXT, "hf_tokenizer_name": "model", "tokenizer_kwargs": {"trust_remote_code": True}}
            tokenizer = {"auto_map": {"AutoTokenizer": ["code.Model", None]}, "tokenizer_class": "Strange"}
            (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
        own = read_json(folder / "open_clip_config.json")
        own["model_cfg"]["text_cfg"] = text
        (folder / "open_clip_config.json").write_text(json.dumps(own))
        (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(f"open({str(data / 'ran')!r}, 'w')\n")
    return ["-a", f"{kind.partition(',')[0]}:model", "--class-names", "names.txt"]


@pytest.mark.parametrize("kind", ["hf", "hf, processor", "open_clip", "open_clip, tokenizer"])
def test_no_code_of_a_folder_runs_whatever_the_user_types(kind, data, capsys, monkeypatch):
    words = with_code(data, kind)
    capsys.readouterr()  # transformers shows how it writes
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 9))
    assert main(["adapt", "data", *DATA, *words, "--log", "never"]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    (error,) = [line for line in shown.err.splitlines() if "it/s]" not in line and line]
    assert "code" in error
    assert "load the model in Python" in error
    assert not (data / "ran").exists()
    assert not (data / "never").exists()

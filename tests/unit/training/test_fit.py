"""What is chosen for speed changes rounding alone: layout and precision. Images are read once."""

import numpy as np
import pytest
import torch

import tllib_ancon
from tests.support.domains_on_disk import write_domain
from tests.support.networks import HALVES, Net
from tests.support.small import adapt
from tllib_ancon.data.readers import Files
from tllib_ancon.runtime import devices
from tllib_ancon.training import trainer

IMAGES = torch.randn(20, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_the_layout_changes_the_rounding_alone(monkeypatch):
    expected = adapt(Net(3), IMAGES, epochs=1).model.state_dict()
    monkeypatch.setattr(trainer, "MANY_CONVOLUTIONS", 0)
    found = adapt(Net(3), IMAGES, epochs=1).model.state_dict()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-4)


# Precision


@pytest.mark.parametrize(("precision", "is_rounded"), [("bf16", True), ("no", False)])
def test_a_run_in_bfloat16_has_weights_in_float32_and_evaluates_in_bfloat16(precision, is_rounded, tmp_path):
    result = adapt(mixed_precision=precision, epochs=1, log=tmp_path)
    assert not any(tensor.dtype == torch.bfloat16 for tensor in result.model.state_dict().values())
    logits = torch.from_numpy(np.load(tmp_path / "predictions.npz")["logits"])
    assert logits.dtype == torch.float32
    assert torch.equal(logits, logits.bfloat16().float()) == is_rounded


def test_images_are_read_once_in_training(tmp_path, monkeypatch, capfd):
    write_domain(tmp_path, "dark", 12, seed=0)
    read = []
    decode = Files.read

    def counted(files, position):
        read.append(position)
        return decode(files, position)

    monkeypatch.setattr(Files, "read", counted)
    call = {"model": Net(3), "images": str(tmp_path / "dark"), "epochs": 2, "workers": 0, "batch_size": 4}
    tllib_ancon.adapt(**call, **HALVES, image_size=32)
    assert len(read) <= 12 + 8  # eight to look at the network
    monkeypatch.setattr(devices, "free_memory", lambda: 4 * 12 * 32 * 32 * 3)
    tllib_ancon.adapt(**call, **HALVES, image_size=32)
    assert len(read) > 2 * 12
    assert "`cache` keeps them on disk" in capfd.readouterr().err

"""A checkpoint's file gives a state dict or one line, whatever it holds; no code of it runs."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.support.checkpoints import Backbone
from tests.support.refusals import one_line
from tllib_ancon.models.checkpoints import load_state_dict

ONE = {"w": torch.zeros(1)}
ITSELF = {}
ITSELF["state_dict"] = ITSELF


def write(path, content):
    torch.save(content, path)
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (nn.Linear(2, 2), "reading it would run code of the file.; .*save the weights alone: torch.save"),
        ([torch.zeros(1)], "but a list"),
        ({}, "but a dict"),
        ({"epoch": 3, "parts": ONE, "others": ONE}, "the entries epoch, parts, others; save the weights alone: torch"),
        ({"state_dict": ONE, "state_dict_ema": ONE}, r"the entries state_dict, state_dict_ema; .*\[ENTRY\], NEW_FILE"),
        ({"G": 1, "F1": 2, "F2": 3}, "the entries G, F1, F2"),
        ({3: torch.zeros(1)}, "the entries 3"),
        (ITSELF, "the entries state_dict"),
    ],
)
def test_what_is_not_a_state_dict_is_named(content, said, tmp_path):
    with one_line(f"other.pth .*{said}"):
        load_state_dict(write(tmp_path / "other.pth", content))


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_missing_empty_and_truncated_files(suffix, tmp_path):
    path = tmp_path / f"model{suffix}"
    with one_line("cannot be read as a checkpoint"):
        load_state_dict(path)
    state = Backbone().state_dict()
    (save_file if suffix == ".safetensors" else torch.save)(state, path)
    whole = path.read_bytes()
    for length in (0, 1, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with one_line("cannot be read"):
            load_state_dict(path)

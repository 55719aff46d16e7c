"""A checkpoint's file gives a state dict or one line, whatever it holds; no code of it runs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.support.checkpoints import Backbone, cdan
from tests.support.refusals import one_line
from tllib_ancon.models.checkpoints import load_into, load_state_dict
from tllib_ancon.runtime.errors import UserError

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


@given(data=st.data())
def test_a_damaged_file_is_an_error_or_a_state_dict(data, tmp_path_factory):
    path = write(tmp_path_factory.mktemp("damaged") / "model.pth", cdan())
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        state = load_state_dict(path)
    except UserError:
        return
    assert all(isinstance(tensor, Tensor) for tensor in state.values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(3).to_sparse(),
        torch.empty(3, 3, device="meta"),
        torch.ones(3, 3, dtype=torch.int8),
        torch.ones(3, 3, dtype=torch.complex64),
    ],
)
def test_peculiar_tensors_are_named(tensor, tmp_path):
    state = load_state_dict(write(tmp_path / "odd.pth", {"weight": tensor, "bias": torch.zeros(3)}))
    with one_line("does not fit the network: .*weight"):
        load_into(nn.Linear(3, 3), state, "odd.pth")

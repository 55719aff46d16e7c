"""The adapted model becomes a program of torch.export by the lines of docs/networks.md."""

import re

import torch

from tests.support.networks import PIXELS, PREPROCESSING, QUICK, SIDE, Net, normalised
from tests.support.places import ROOT
from tllib_ancon import adapt

PAGE = ROOT / "docs" / "networks.md"


def test_the_lines_of_the_page_write_a_program_for_any_number_of_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (lines,) = re.findall(
        r"^images = torch\.zeros.*?torch\.export\.save.*?\n", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    result = adapt(Net(), PIXELS, **PREPROCESSING, **QUICK)
    exec(lines.replace("224", str(SIDE)), {"torch": torch, "result": result})
    program = torch.export.load("model.pt2").module()
    for count in (1, 7):
        images = normalised(PIXELS[:count])
        torch.testing.assert_close(program(images), result.model(images))

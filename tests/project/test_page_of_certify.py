"""The examples of docs/certify.md run, and its numbers are those of the benchmark's table."""

import re

import numpy as np
from torch import nn

import tllib_ancon
from tests.support.places import ROOT, blocks_of
from tests.support.serving import Visitor
from tllib_ancon.certificate import page

PAGE = (ROOT / "docs" / "certify.md").read_text()
TABLE = (ROOT / "benchmarks" / "certificate" / "README.md").read_text()


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    in_a_session, by_hand = blocks_of(PAGE, "python")
    names = {}
    exec(by_hand, names)
    assert capsys.readouterr().out.startswith("better ")
    generator = np.random.default_rng(0)
    images = generator.standard_normal((200, 3, 8, 8), dtype=np.float32)
    hidden = nn.Linear(192, 8), nn.BatchNorm1d(8)
    network = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(8, 3))
    result = tllib_ancon.adapt(network, images, method="shot-im", epochs=1, workers=0, quiet=True)
    names |= {"model": network, "images": images, "result": result}
    real = page.serve
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(page, "serve", lambda session: real(session, port=0, say=finished_at_once))
    exec(in_a_session, names)
    assert capsys.readouterr().out.startswith("not certified: the adapted model's accuracy minus the source model's is")
    assert (tmp_path / "answers.json").is_file()


def finished_at_once(address):
    import threading

    threading.Thread(target=lambda: Visitor(address).post("finish", {})).start()


def test_its_numbers_are_those_of_the_table():
    rates = [float(value) for value in re.findall(r"^\| equal models.*?\| ([\d.]+) \|", TABLE, re.MULTILINE)]
    assert f"{np.min(rates):.1f} to {np.max(rates):.1f} %" in PAGE
    ratios = [float(ratio) for ratio in re.findall(r"^\| \d+ % \|.*\| ([\d.]+) \|$", TABLE, re.MULTILINE)]
    assert f"{min(ratios):g} to {max(ratios):g} times as many" in PAGE

"""A run does not depend on how its images are loaded, from a cache or by how many processes."""

import gc
import multiprocessing

import pytest

import tllib_ancon
from tests.support.killable import differences, weights
from tests.support.networks import PIXELS, PREPROCESSING, QUICK, Net
from tllib_ancon.cli.main import main

CROPS = ["--train-resizing", "default", "--image-size", "14", "-b", "8"]


def test_a_run_depends_on_neither_cache_nor_workers(adapt, tmp_path):
    assert main(adapt("plain", *CROPS)) == 0
    assert main(adapt("cached", *CROPS, "--cache", str(tmp_path / "cache"), "-j", "2")) == 0
    assert main(adapt("another seed", *CROPS, "--seed", "8")) == 0
    plain = weights(tmp_path / "plain")
    assert differences(plain, weights(tmp_path / "cached")) == []
    assert differences(plain, weights(tmp_path / "another seed")) != []


@pytest.mark.parametrize("method", ["ancon-auto", "adabn"])
def test_no_worker_outlives_its_run(method):
    gc.collect()
    gc.disable()
    try:
        tllib_ancon.adapt(Net(), PIXELS, method=method, **{**QUICK, "workers": 1}, **PREPROCESSING)
        assert not multiprocessing.active_children()
    finally:
        gc.enable()

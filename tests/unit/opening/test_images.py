"""What settings and a caller name is opened by all of their arguments, and cached where it is read again."""

import os

import pytest

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.data import cache
from tllib_ancon.data.open import as_domain
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.opening import images
from tllib_ancon.opening.transforms import Transforms
from tllib_ancon.runtime import devices

STAGES = pytest.mark.parametrize(("stage", "split"), [(AdaptConfig, "train"), (PredictConfig, "test")])


@STAGES
def test_every_argument_reaches_the_images(stage, split, monkeypatch):
    for door in ("as_domain", "open_domain"):
        monkeypatch.setattr(images, door, lambda *where, **how: (where, how))
    config = stage(root="photos", data="PACS", skip_corrupt=True, workers=3, loader="os:fspath")
    how = {"labels": False, "skip_corrupt": True, "workers": 3, "loader": os.fspath}
    opened = images.open_by_settings(config, ["A"], labels=False, classes=["cat"])
    assert opened == (("photos", "PACS", ["A"], split), {**how, "classes": ["cat"]})
    for place, codes in (([1], ["A"]), ("more", [])):
        assert images.open_by_settings(config.replace(data=None), codes, place, False) == ((place,), how)


@STAGES
def test_files_are_cached_in_a_named_file_else_in_a_quarter_of_the_free_memory(stage, split, monkeypatch):
    for name in ("cached", "cached_in_memory"):
        monkeypatch.setattr(cache, name, lambda *arguments: arguments)
    monkeypatch.setattr(devices, "free_memory", lambda: 402)
    files = as_domain([__file__])
    transform = Preprocessing(image_size=8).for_evaluation()
    cached = images.with_cache(stage(), files, Transforms(transform, len), [])
    assert cached == ((files, [transform.resizing], 100, []) if split == "train" else files)
    cached = images.with_cache(stage(cache="kept"), files, Transforms(len, transform), [])
    assert cached == (files, "kept", [transform.resizing])

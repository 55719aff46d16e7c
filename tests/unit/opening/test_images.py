"""What settings and a caller name is opened by all of their arguments."""

import os

import pytest

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.opening import images


@pytest.mark.parametrize(("stage", "split"), [(AdaptConfig, "train"), (PredictConfig, "test")])
def test_every_argument_reaches_the_images(stage, split, monkeypatch):
    monkeypatch.setattr(images, "open_domain", lambda *where, **how: (where, how))
    config = stage(root="photos", data="PACS", skip_corrupt=True, workers=3, loader="os:fspath")
    opened = images.open_by_settings(config, ["A"], labels=False, classes=["cat"])
    how = {"labels": False, "skip_corrupt": True, "workers": 3, "loader": os.fspath, "classes": ["cat"]}
    assert opened == (("photos", "PACS", ["A"], split), how)

"""Models of transformers, timm and open_clip get images as their libraries prepare them; what cannot learn is said."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import tllib_ancon
from tests.support.domains_on_disk import write_domain
from tests.support.killable import differences
from tests.support.networks import transformer
from tests.support.refusals import one_line

transformers = pytest.importorskip("transformers", minversion="5")

QUICK = {"epochs": 1, "batch_size": 4, "workers": 0, "quiet": True, "seed": 3}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    write_domain(folder, "dark", 12, seed=0)
    return folder / "dark"


def test_images_are_prepared_by_the_processor_beside_the_model_or_by_the_one_that_is_given(photos, tmp_path):
    mean = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    processor = transformers.CLIPImageProcessor(
        size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32}, **mean
    )
    fresh = transformer()
    for part in (fresh, processor):
        part.save_pretrained(tmp_path)
    saved = transformers.ViTForImageClassification.from_pretrained(tmp_path)
    seen = []
    fresh.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    own = tllib_ancon.predict(saved, photos, workers=0)
    given = tllib_ancon.predict(fresh, photos, workers=0, evaluation_transform=processor)
    assert np.array_equal(own.probabilities, given.probabilities)
    expected = processor([Image.open(path) for path in own.paths], return_tensors="pt")["pixel_values"]
    passed = torch.cat(seen)[-len(expected) :]  # after the few with which a model is opened
    torch.testing.assert_close(passed, expected, rtol=0, atol=1e-6)
    of_saved = tllib_ancon.adapt(saved, photos, **QUICK).model.state_dict()
    of_fresh = tllib_ancon.adapt(fresh, photos, evaluation_transform=processor, **QUICK).model.state_dict()
    assert differences(of_saved, of_fresh) == []


def test_settings_replace_a_processor_as_a_whole(photos, tmp_path):
    for part in (transformer(), transformers.ViTImageProcessor(size={"height": 32, "width": 32})):
        part.save_pretrained(tmp_path)
    model = transformers.ViTForImageClassification.from_pretrained(tmp_path)
    with one_line("the preprocessing of this network is unknown"):
        tllib_ancon.predict(model, photos, image_size=32)
    settings = {"image_size": 32, "norm_mean": (0.0,) * 3, "norm_std": (1.0,) * 3}
    replaced = tllib_ancon.predict(model, photos, **settings)
    own = tllib_ancon.predict(model, photos)
    assert not np.allclose(replaced.probabilities, own.probabilities, atol=1e-6)
    result = tllib_ancon.adapt(model, photos, log=tmp_path / "run", **QUICK)
    of_the_run = tllib_ancon.predict(tmp_path / "run", photos, views=1).probabilities
    np.testing.assert_array_equal(of_the_run, tllib_ancon.predict(result.model, photos).probabilities)


def test_an_evaluation_transform_alone_is_enough_and_training_sees_its_mirrors(photos):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 3))
    model[1].weight.data *= 99  # certain predictions

    def transform(image):
        return torch.from_numpy(np.array(image.resize((8, 8)))).movedim(2, 0) / 255

    def mirroring(image):
        tensor = transform(image)
        return tensor.flip(-1) if torch.rand(()) < 0.5 else tensor

    def weights(**settings):
        result = tllib_ancon.adapt(model, photos, evaluation_transform=transform, adapted="all", **settings, **QUICK)
        return result.model.state_dict()

    assert differences(weights(views=1, no_hflip=False), weights(train_transform=mirroring)) == []
    assert differences(weights(no_hflip=True), weights(train_transform=transform)) == []
    assert differences(weights(no_hflip=False), weights(no_hflip=True))

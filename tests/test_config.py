from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import REFUSED
from tllib_ancon import config, methods
from tllib_ancon.config import ASSUMED, INHERITED, OF_THE_NETWORK, AdaptConfig, PredictConfig, PretrainConfig
from tllib_ancon.errors import UserError


@pytest.mark.parametrize("method", methods.names())
def test_a_configuration_is_its_own_record(method: str) -> None:
    config = AdaptConfig(method=method, epochs=3, scale=[0.2, 1], target=["D", "W"], norm_mean=(0.5,) * 3)
    recorded = json.loads(json.dumps(config.to_dict()))
    assert AdaptConfig(**recorded).to_dict() == config.to_dict()
    assert recorded["target"] == ["D", "W"]
    assert set(methods.settings(method)) <= set(recorded)


@pytest.mark.parametrize("method", ["erm", "cdan", "mdd"])
def test_a_source_configuration_is_its_own_record(method: str) -> None:
    config = PretrainConfig(method=method, source=["A"])
    assert PretrainConfig(**json.loads(json.dumps(config.to_dict()))).to_dict() == config.to_dict()
    assert config.replace(epochs=7).epochs == 7
    assert PretrainConfig(method=method, lr=0.5, scale=None).lr == 0.5


@pytest.mark.parametrize(("owner", "settings", "message"), REFUSED["settings"])
def test_what_is_refused(owner: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        getattr(config, owner)(**settings)
    assert message in str(error.value)


def test_a_model_brings_the_settings_of_its_pictures() -> None:
    recorded = {"arch": "resnet50", "image_size": 96, "norm_mean": [0.5] * 3, "arch_option": ["pad_type=same"]}
    recorded["bottleneck_dropout"] = 0.4
    config = AdaptConfig().inherit(recorded, "best.pth")
    assert (config.arch, config.image_size, config.norm_mean) == ("resnet50", 96, (0.5,) * 3)
    assert (config.arch_option, config.bottleneck_dropout) == (("pad_type=same",), 0.4)
    assert config.resize_size == ASSUMED["resize_size"]
    assert AdaptConfig(image_size=96).inherit(recorded, "best.pth").image_size == 96
    with pytest.raises(UserError, match=r"`image_size=128` contradicts the run that trained best\.pth: there it is 96"):
        AdaptConfig(image_size=128).inherit(recorded, "best.pth")
    assert AdaptConfig(image_size=128, override=True).inherit(recorded, "best.pth").image_size == 128


def test_without_a_run_the_assumptions_stand() -> None:
    config = PredictConfig().inherit(None, "best.pth")
    assumed = {name: value for name, value in ASSUMED.items() if name not in OF_THE_NETWORK}
    assert {name: getattr(config, name) for name in assumed} == assumed
    assert [getattr(config, name) for name in OF_THE_NETWORK] == [None, None]
    assert set(ASSUMED) <= set(INHERITED)

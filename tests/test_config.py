from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tllib_ancon import methods
from tllib_ancon.cli.parser import spelled
from tllib_ancon.config import ASSUMED, INHERITED, OF_THE_NETWORK, AdaptConfig, PredictConfig, PretrainConfig, read_file
from tllib_ancon.errors import UserError
from tllib_ancon.paper.plan import command_words


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


@pytest.mark.parametrize(
    ("owner", "settings", "message"),
    [
        (AdaptConfig, {"epochs": 0}, "`epochs` must be at least 1, got 0"),
        (AdaptConfig, {"epochs": 2.5}, "`epochs` must be a whole number, got 2.5"),
        (AdaptConfig, {"batch_size": 2.0}, "`batch_size` must be a whole number or left out, got 2.0"),
        (AdaptConfig, {"criterion": "infomx"}, "did you mean 'infomax'"),
        (AdaptConfig, {"smoothing": True}, "`smoothing` must be a number, got True"),
        (AdaptConfig, {"epochs": True}, "`epochs` must be a whole number"),
        (AdaptConfig, {"lr": "fast"}, "`lr` must be a number, got 'fast'"),
        (AdaptConfig, {"lr": float("nan")}, "`lr` must be above 0"),
        (AdaptConfig, {"lr": float("inf")}, "`lr` must be above 0"),
        (AdaptConfig, {"seed": 2**32}, "`seed` must be at least 0 and at most 4294967295"),
        (AdaptConfig, {"epoch": 1}, "unknown setting 'epoch'; did you mean 'epochs'"),
        (AdaptConfig, {"smothing": 0.3}, "did you mean 'smoothing'"),
        (AdaptConfig, {"method": "ancno"}, "did you mean 'ancon'"),
        (AdaptConfig, {"method": "gce", "smoothing": 0.3}, "`smoothing` is an option of"),
        (AdaptConfig, {"smoothing": 2}, "smoothing"),
        (AdaptConfig, {"mixed_precision": "fp8"}, "unknown value of `mixed_precision`: 'fp8'"),
        (AdaptConfig, {"scale": (1, 0.5)}, "MIN <= MAX"),
        (AdaptConfig, {"scale": 0.5}, "`scale` must be 2 numbers, got 0.5"),
        (AdaptConfig, {"target": "D"}, "`target` must be a list of texts, got 'D'"),
        (AdaptConfig, {"norm_mean": "grey"}, "`norm_mean` must be a list of numbers or left out, got 'grey'"),
        (AdaptConfig, {"quiet": True, "verbose": True}, "exclude each other"),
        (PretrainConfig, {"method": "em"}, "did you mean 'erm'"),
        (PretrainConfig, {"method": "cdan", "margin": 2.0}, "`margin` is an option of `method=mdd`, not of cdan"),
        (PretrainConfig, {"label_smoothing": 0.1, "loss": "belief-matching"}, "belongs to the cross-entropy"),
        (PredictConfig, {"batch_size": -1}, "`batch_size` must be at least 1"),
    ],
)
def test_what_is_refused(owner: type, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        owner(**settings)
    assert message in str(error.value)


def test_defaults_depend_on_the_method_and_the_dataset() -> None:
    assert (PretrainConfig(method="mdd").lr, PretrainConfig(method="mdd").bottleneck_dim) == (0.004, 1024)
    assert PretrainConfig(method="cdan").hold_out is None
    assert PretrainConfig(method="cdan").margin is None
    assert AdaptConfig(method="aad", data="VisDA2017").options["neighbors"] == 5
    assert AdaptConfig(batch_norm="source").lr == 0.001


def test_a_model_brings_the_settings_of_its_pictures() -> None:
    recorded = {"arch": "resnet50", "image_size": 96, "norm_mean": [0.5] * 3, "arch_option": ["pad_type=same"]}
    config = AdaptConfig().inherit(recorded, "best.pth")
    assert (config.arch, config.image_size, config.norm_mean) == ("resnet50", 96, (0.5,) * 3)
    assert config.arch_option == ("pad_type=same",)
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


@given(st.dictionaries(st.sampled_from(["lr", "momentum", "hold_out"]), st.floats(0.001, 0.999)))
def test_words_give_the_settings_back(settings: dict[str, float]) -> None:
    words = command_words({**settings, "no_hflip": True, "target": ("D", "W"), "channels_last": False, "cache": None})
    assert words[-5:] == ["--no-hflip", "--target", "D", "W", "--no-channels-last"]
    numbers = dict(zip(words[: 2 * len(settings) : 2], words[1 : 2 * len(settings) : 2], strict=True))
    assert {name[2:].replace("-", "_"): float(value) for name, value in numbers.items()} == settings


def test_a_file_gives_settings_by_the_names_of_flags(tmp_path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('batch-size = 8\nmethod = "gce"\n[adapt]\nhold-out = 0.2\n')
    assert read_file(path) == {"batch_size": 8, "method": "gce", "adapt": {"hold_out": 0.2}}
    path.write_text("epochs = \n")
    with pytest.raises(UserError, match=r"run\.toml cannot be read as TOML"):
        read_file(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_file(tmp_path / "none.toml")


def test_messages_name_flags_on_the_command_line() -> None:
    assert (
        spelled("pass `skip_corrupt=True` or a smaller `batch_size`") == "pass --skip-corrupt or a smaller --batch-size"
    )
    assert spelled("leave it out with `loss=belief-matching`; `path label` a line") == (
        "leave it out with --loss belief-matching; `path label` a line"
    )

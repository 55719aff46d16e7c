"""Networks by name, their options, and what is asked for without being possible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.end_to_end.test_hostile_files import Bomb
from tllib_ancon.errors import UserError
from tllib_ancon.models import backbones
from tllib_ancon.models.backbones import create_backbone
from tllib_ancon.models.classifier import shot_classifier
from tllib_ancon.models.loading import load, source_model
from tllib_ancon.models.networks import create_network, names
from tllib_ancon.models.preprocessing import Preprocessing, preprocessing_of


@pytest.fixture
def bomb(tmp_path: Path) -> tuple[Path, Path]:
    """A file whose reading makes another, and that other file."""
    victim = tmp_path / "victim"
    torch.save(Bomb(victim), tmp_path / "bomb.pth")
    return tmp_path / "bomb.pth", victim


@pytest.mark.parametrize("build", [create_backbone, create_network])
def test_no_option_of_a_network_reads_a_file(build: Any, bomb: tuple[Path, Path]) -> None:
    file, victim = bomb
    for option, value in {
        "checkpoint_path": str(file),
        "pretrained_cfg": {"file": str(file)},
        "pretrained_cfg_overlay": {"file": str(file)},
        "cache_dir": str(file.parent),
        "pretrained_model_args": {"a": str(file)},
        "num_classes": 3,
        "pretrained": True,
    }.items():
        with pytest.raises(UserError, match=f"`arch_option` {option} is not of the network test_resnet"):
            build("test_resnet", pretrained=True, options={option: value})
    for value in (str(file), {"a": [str(file)]}, ("https://x",), "C:\\weights", "weights.pth"):
        with pytest.raises(UserError, match=r"`arch_option` act_layer: .* names a file or an address"):
            build("test_resnet", pretrained=False, options={"act_layer": value})
    assert not victim.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"features_only": True}, r"features_only.*gives a list where one vector an image is expected"),
        ({"in_chans": 1}, r"in_chans.*cannot be called on images \(2, 3, 160, 160\)"),
        ({"global_pool": ""}, r"global_pool.*gives \(2, \d+, \d+, \d+\) of torch.float32 where one vector"),
        ({"act_layer": "none_such"}, "test_resnet cannot be built"),
        ({"no_such": 1}, r"does not accept .*no_such"),
    ],
)
def test_options_that_leave_no_features_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        create_backbone("test_resnet", pretrained=False, options=options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("options", [{"features_only": True}, {"in_chans": 1}, {"global_pool": ""}])
def test_options_that_leave_no_logits_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        load("imagenet", "test_resnet", arch_options=options, scratch=True)


def test_options_are_for_timm() -> None:
    for name in ("small_cnn", "resnet18", "torchvision/swin_t"):
        with pytest.raises(UserError, match=f"`arch_option` is for timm models; {name} takes none, got pad_type"):
            create_backbone(name, pretrained=False, options={"pad_type": "same"})


@pytest.mark.parametrize(
    ("num_classes", "bottleneck_dim", "said"),
    [
        (10**12, 256, r"`num_classes` 1000000000000: .* 2\.6e\+14 weights; at most 4194304 are possible"),
        (31, 10**9, r"`bottleneck_dim` 1000000000: .* 1\.3e\+11 weights; at most 8388608 are possible"),
    ],
)
def test_sizes_are_limited_before_memory_is_asked_for(num_classes: int, bottleneck_dim: int, said: str) -> None:
    with pytest.raises(UserError, match=said):
        shot_classifier(backbones.SmallCNN(), num_classes, bottleneck_dim)


def test_the_classes_of_a_whole_network_are_limited_too() -> None:
    with pytest.raises(UserError, match="`num_classes` 1000000000000"):
        create_network("resnet18", 10**12)


def test_a_backbone_tells_its_width() -> None:
    with pytest.raises(UserError, match="Conv2d needs a whole number `out_features`, has None"):
        shot_classifier(nn.Conv2d(3, 3, 3), 2)


def test_a_source_model_knows_its_preprocessing() -> None:
    backbone = create_backbone("small_cnn")
    model = source_model(backbone, 3, 8)
    assert model.preprocessing == Preprocessing((0.5,) * 3, (0.5,) * 3)
    assert model.eval()(torch.zeros(2, 3, 16, 16)).shape == (2, 3)
    with pytest.raises(RuntimeError):
        source_model(backbone, 3, 8, pool=False)(torch.zeros(2, 3, 16, 16))


def test_preprocessing_is_that_of_the_networks_library() -> None:
    vit = create_network("test_vit")
    assert preprocessing_of(vit) == Preprocessing((0.5,) * 3, (0.5,) * 3, 160, 0.95)
    assert preprocessing_of(create_network("test_vit", options={"img_size": 64})).image_size == 64
    imagenet = Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 224)
    assert preprocessing_of(create_network("torchvision/resnet18")) == imagenet
    assert preprocessing_of(nn.Flatten()) is None


def test_weights_that_a_name_of_timm_has_not() -> None:
    with pytest.raises(UserError, match=r"unknown weights of resnet50 'a1_in1'; did you mean 'a1_in1k'"):
        create_backbone("resnet50.a1_in1", pretrained=False)


def test_every_name_is_known() -> None:
    known = names()
    assert len(known) == len(set(known))
    assert {"small_cnn", "dtn", "resnet50", "mobilenetv2_100", "torchvision/swin_t"} <= set(known)


def test_without_a_connection_weights_are_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    import timm

    asked: list[str] = []

    def fail(url: str, **options: object) -> None:
        asked.append(url)
        raise OSError("no route")

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", fail)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: pytest.fail("it would try for 50 seconds"))
    with pytest.raises(UserError, match=r"weights of test_resnet are not in the cache.*no route.*`scratch=True`"):
        create_backbone("test_resnet")
    assert len(asked) == 1


def test_weights_in_the_cache_need_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    import timm

    build = timm.create_model
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda *_, **__: pytest.fail("no connection needed"))
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: "/cache/model.safetensors")
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained, **options: build(name, **options))
    assert create_backbone("test_resnet").pretrained

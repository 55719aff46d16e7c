"""What the owner of a model froze stays frozen, and adapters alone learn."""

import copy

import pytest
import torch
from torch.utils.data import TensorDataset

import tllib_ancon
from tests.support.refusals import one_line
from tests.support.small import adapt, network, transformer

IMAGES = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def frozen_but(model, *learning):
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(any(word in name for word in learning))
    return model


def changed(before, after):
    theirs = dict(after.named_parameters())
    return {name for name, parameter in before.named_parameters() if not torch.equal(parameter, theirs[name])}


def predicted(model):
    return tllib_ancon.predict(model, TensorDataset(IMAGES), workers=0).probabilities


def flags(model):
    return {name: parameter.requires_grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("settings", [{}, {"method": "tent"}], ids=str)
def test_what_is_frozen_stays_so_to_the_byte(settings):
    model = frozen_but(transformer(), "norm")
    result = adapt(model, IMAGES, **settings)
    learning = {name for name, learns in flags(model).items() if learns}
    assert changed(model, result.model) == learning
    assert flags(result.model) == flags(model)


NOTHING_LEARNS = (
    '^no parameter of the model learns with `adapted="as-given"`; pass a network with weights and `adapted="all"`; '
    "load adapters of PEFT with is_trainable=True$"
)


def test_a_frozen_model_is_refused_unless_its_statistics_alone_change():
    model = frozen_but(network())
    with one_line(NOTHING_LEARNS):
        adapt(model)
    after = adapt(model, method="adabn").model
    assert changed(model, after) == set()
    assert not torch.equal(model[2].running_mean, after[2].running_mean)


@pytest.mark.parametrize("saved", [None, ["head"]])
def test_adapters_learn_alone_and_are_saved(saved, tmp_path):
    peft = pytest.importorskip("peft")
    base = transformer()
    model = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(target_modules=["qkv"], modules_to_save=saved))
    result = adapt(model, IMAGES, lr=0.1)
    learning = changed(model, result.model)
    assert learning == {name for name, learns in flags(model).items() if learns}
    assert all("lora_" in name or "modules_to_save" in name for name in learning)
    assert len(learning) == 4 + 2 * bool(saved)
    assert flags(result.model) == flags(model)
    assert isinstance(result.model, peft.PeftModel)
    result.model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(copy.deepcopy(base), tmp_path).eval()
    expected = predicted(result.model)
    assert (predicted(loaded) == expected).all()
    assert (predicted(model) != expected).any()
    with one_line("load adapters of PEFT with is_trainable"):
        adapt(loaded, IMAGES)

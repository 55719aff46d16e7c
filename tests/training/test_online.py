"""A stream: the equations of the methods, and what a batch changes."""

import copy

import pytest
import torch
from torch import Tensor, nn

import tllib_ancon
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.self_training import roid


def network() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    model[-1].weight.data.mul_(5)  # some predictions are certain
    return model


def stream(count: int = 10) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(16, 3, 8, 8, generator=generator) + 0.5 for _ in range(count)]


def naive_tent(model: nn.Module, batches: list[Tensor], lr: float) -> list[Tensor]:
    """Entropy minimisation of scale and shift with batch statistics; each output is that before its step."""
    model = copy.deepcopy(model).train().requires_grad_(False)
    norm = model[1]
    norm.requires_grad_(True)
    norm.track_running_stats, norm.running_mean, norm.running_var = False, None, None
    optimizer, outputs = torch.optim.Adam(norm.parameters(), lr=lr), []
    for batch in batches:
        logits = model(batch)
        loss = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        outputs.append(logits.detach())
    return outputs


def test_tent_is_its_definition_over_ten_batches() -> None:
    model = network()
    adapting = tllib_ancon.online(model, method="tent", lr=1e-2)
    for found, expected in zip(map(adapting, stream()), naive_tent(model, stream(), 1e-2), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", ["tent", "adabn", "eta", "roid", "ancon-auto"])
def test_the_given_model_stays_a_reset_restores_and_a_state_continues(method: str) -> None:
    model = network()
    before, batches = copy.deepcopy(model.state_dict()), stream(6)
    adapting = tllib_ancon.online(model, method=method, **({} if method == "adabn" else {"lr": 1e-2}))
    first = [adapting(batch) for batch in batches]
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)
    scale = adapting.model[1].weight
    assert torch.equal(scale, model[1].weight) == (method == "adabn")
    adapting.reset()
    for batch, expected in zip(batches, first, strict=True):
        torch.testing.assert_close(adapting(batch), expected)
    assert "model.1.weight" in adapting.state_dict()


def test_dense_outputs_take_tent_and_adabn_and_others_say_so() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 5, 1))
    assert tllib_ancon.online(model, method="tent")(stream(1)[0]).shape == (16, 5, 6, 6)
    assert tllib_ancon.online(model, method="adabn")(stream(1)[0]).shape == (16, 5, 6, 6)
    with pytest.raises(UserError, match="choose tent or adabn"):
        tllib_ancon.online(model, method="roid")(stream(1)[0])


@pytest.mark.parametrize("method", ["tent", "eta", "roid", "ancon-auto"])
def test_one_logit_stays_one(method: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 1))
    adapting = tllib_ancon.online(model, method=method)
    first = adapting(stream(1)[0])
    assert first.shape == (16, 1)
    if method != "roid":  # which corrects predictions by the class prior
        torch.testing.assert_close(first, copy.deepcopy(model).train()(stream(1)[0]))


@pytest.mark.parametrize("method", ["tent", "eta", "roid", "ancon-auto"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_models_of_other_precisions_adapt(method: str, dtype: torch.dtype) -> None:
    adapting = tllib_ancon.online(network().to(dtype), method=method)
    for batch in stream(2):
        assert adapting(batch.to(dtype)).isfinite().all()


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (network(), {"method": "tnet"}, "did you mean 'tent'"),
        (network(), {"optimizer": "adma"}, "did you mean 'adam"),
        (nn.Linear(3, 2), {}, "needs normalisation layers"),
    ],
)
def test_what_cannot_adapt_to_a_stream(model: nn.Module, settings: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        tllib_ancon.online(model, **settings)


@pytest.mark.parametrize("method", ["tent", "eta", "roid", "ancon-auto"])
def test_a_bad_batch_is_an_error_and_changes_nothing(method: str) -> None:
    adapting = tllib_ancon.online(network(), method=method)
    first, second = stream(2)
    adapting(first)
    again = copy.deepcopy(adapting)
    with pytest.raises(UserError, match="at least two samples"):
        adapting(first[:1])
    with pytest.raises(UserError, match="are not finite; leave out"):
        adapting(torch.where(first > 2, torch.nan, first))
    assert torch.equal(adapting(second), again(second))


def test_the_parts_of_roid_are_their_equations() -> None:
    logits, other = torch.randn(6, 4), torch.randn(6, 4)
    f, g = logits.softmax(1), other.softmax(1)
    ratio = -(f * (f / (1 - f)).log()).sum(1)
    torch.testing.assert_close(roid.soft_likelihood_ratio(logits), ratio, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(roid.symmetric_cross_entropy(logits, other), -(g * f.log() + f * g.log()).sum(1) / 2)
    smoothing = max(1 / 6, 1 / 4) / f.mean(0).max()
    expected = f * (f.mean(0) + smoothing) / (1 + 4 * smoothing)
    torch.testing.assert_close(roid.corrected(logits).exp(), expected / expected.sum(1, keepdim=True))
    weights = roid.certainty_and_diversity(logits, f.mean(0))
    diversity = 1 - nn.functional.cosine_similarity(f, f.mean(0)[None])
    assert ((weights == 0) == (diversity < diversity.mean())).all()

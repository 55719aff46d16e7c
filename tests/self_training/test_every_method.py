"""What holds for every method by itself, whatever it computes."""

import contextlib
import copy

import pytest
import torch
from torch import Tensor, nn

from tests.self_training.neighborhoods import few_neighbors
from tllib_ancon import methods
from tllib_ancon.self_training.processes import Shard

SAMPLES, CLASSES, WIDTH, BATCH, EPOCHS = 24, 4, 6, 8, 3
IN_ORDER = torch.arange(SAMPLES)
CHOICES = {
    **{name: (name, {}) for name in methods.names()},
    "schedule": ("ancon", {"schedule": "half"}),
    "paper": ("gce+ancon", {"convention": "paper", "normalize": True, "weighting": "entropy"}),
    "soft": ("shot+ancon", {"prediction": "soft", "temperature": 2.0}),
    "quantile": ("nrc+ancon-auto", {"weighting": "quantile", "quantile": 0.5}),
    "normalized": ("nrc+ancon", {"mixing": "normalized"}),
    "decaying": ("aad+ancon", {"aad_beta": 5.0}),
    "dropout": ("aad+ancon-auto", {"confidence": "mc-dropout", "dropout_probability": 0.0}),
    "beliefs": ("ancon", {"confidence": "belief-matching"}),
}
EVERY = pytest.mark.parametrize("choice", CHOICES)


def create(choice: str, **more: object) -> methods.Method:
    name, options = CHOICES[choice]
    sizes: dict[str, object] = {"num_samples": SAMPLES, "num_classes": CLASSES, "feature_dim": WIDTH, "total_steps": 9}
    torch.manual_seed(0)
    sizes["head"] = more.pop("head", None) or nn.Linear(WIDTH, CLASSES)
    return methods.create(name, **sizes, **few_neighbors(name, 3, 2), **{**options, **more})


def losses(
    method: methods.Method, position: Tensor = IN_ORDER, dtype: torch.dtype = torch.float32, seed: int = 0
) -> list[Tensor]:
    """Three epochs over the same images in the same order, image ``i`` stored at ``position[i]``."""
    generator = torch.Generator().manual_seed(seed)
    stored = position.argsort()
    result = []
    for epoch in range(EPOCHS):
        features = torch.randn(SAMPLES, WIDTH, generator=generator).bfloat16().to(dtype)
        logits = (2 * torch.randn(SAMPLES, CLASSES, generator=generator)).bfloat16().to(dtype)
        if method.needs_pass(epoch):
            method.initialize(epoch, IN_ORDER, features[stored], logits[stored])
        for visited in torch.randperm(SAMPLES, generator=generator).split(BATCH):
            result.append(method(position[visited], logits[visited], features[visited]))
    return result


@EVERY
def test_the_order_in_which_samples_are_stored_changes_nothing(choice: str) -> None:
    shuffled = losses(create(choice), torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(1)))
    torch.testing.assert_close(shuffled, losses(create(choice)))


@EVERY
def test_what_a_sample_is_told_depends_on_which_sample_it_is(choice: str) -> None:
    """The opposite check: an index that changes from visit to visit does matter to a method with a memory."""
    method, generator = create(choice), torch.Generator().manual_seed(2)
    memory = any(buffer.shape[:1] == (SAMPLES,) for buffer in method.buffers())
    visit = method._visit
    wrong = lambda indices: torch.randperm(SAMPLES, generator=generator)[: len(indices)]  # noqa: E731
    method._visit = lambda indices, *outputs: visit(wrong(indices), *outputs)
    pairs = zip(losses(method), losses(create(choice)), strict=True)
    assert all(torch.allclose(one, other) for one, other in pairs) != memory


@EVERY
def test_half_precision_and_autocast_are_computed_in_float32(choice: str) -> None:
    if CHOICES[choice][1].get("confidence") == "mc-dropout":
        pytest.skip("the head is the model's")
    expected = losses(create(choice))
    torch.testing.assert_close(losses(create(choice), dtype=torch.bfloat16), expected, check_dtype=choice != "adabn")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(losses(create(choice)), expected)


@EVERY
def test_a_state_that_is_saved_and_loaded_goes_on_the_same_and_a_copy_has_its_own(choice: str) -> None:
    method, restored = create(choice), create(choice)
    losses(method)
    restored.load_state_dict(method.state_dict())
    twin, before = copy.deepcopy(method), copy.deepcopy(method.state_dict())
    expected = losses(twin, seed=1)
    torch.testing.assert_close(method.state_dict(), before, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(losses(restored, seed=1), expected, rtol=0, atol=0)


@EVERY
def test_a_step_never_waits_for_a_device(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the meta device have no values: whatever would read one fails. Indices are on the host."""
    method = create(choice)
    losses(method)
    method.to("meta")
    if CHOICES[choice][1].get("confidence") == "mc-dropout":
        method.confidence = lambda logits, features: logits.detach().softmax(1)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    for visited in IN_ORDER.split(BATCH):
        logits, features = (torch.empty(BATCH, width, device="meta", requires_grad=True) for width in (CLASSES, WIDTH))
        method(visited, logits, features).backward()
        method.diagnostics()
        assert logits.grad is not None
        assert features.grad is None


def test_a_part_is_a_function_of_the_visit() -> None:
    seen = {}

    def objective(visit: methods.Visit, targets: Tensor) -> Tensor:
        seen.update(visit=visit, targets=targets)
        return visit.logits.sum()

    logits, features = torch.tensor([[0.0, 2.0], [3.0, 0.0]], requires_grad=True), torch.randn(2, 3)
    shard = Shard(6, rank=1, world_size=2)
    method = methods.Method(objective, regularizer=lambda visit: visit.features.mean(), shard=shard)
    loss = method(torch.tensor([5, 1]), logits, features)
    visit = seen["visit"]
    torch.testing.assert_close(loss, logits.sum() + features.mean())
    assert (visit.indices.tolist(), visit.rows.tolist(), visit.labels.tolist()) == ([5, 1], [2, 0], [1, 0])
    assert torch.equal(seen["targets"], torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    torch.testing.assert_close(visit.probabilities, logits.softmax(1).detach())
    assert not visit.probabilities.requires_grad


def test_votes_are_weighed_by_the_distribution_that_dropout_gives() -> None:
    """The head is sure of class 0 where the first feature is large, whatever is dropped elsewhere."""
    logits, features = 3 * torch.randn(SAMPLES, CLASSES), torch.zeros(SAMPLES, WIDTH)
    features[:4, 0] = 9.0
    head = nn.Linear(WIDTH, CLASSES, bias=False)
    with torch.no_grad():
        head.weight.zero_()[0, 0] = 1.0
    method = create("ancon", confidence="mc-dropout", head=head, dropout_probability=0.2)
    assert method.state_dict().keys() == create("ancon").state_dict().keys()
    assert len([key for key in method.state_dict() if key.endswith("store.counts")]) == 1
    method(IN_ORDER, logits.requires_grad_(), features.requires_grad_()).backward()
    assert (head.weight.grad, features.grad) == (None, None)
    votes = method.ensemble.votes(IN_ORDER)
    assert (votes.sum(1) > 0).tolist() == [True] * 4 + [False] * (SAMPLES - 4)
    assert votes[:4].argmax(1).tolist() == logits[:4].argmax(1).tolist()

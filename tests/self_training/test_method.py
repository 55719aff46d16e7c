from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from tests.self_training.neighborhoods import few_neighbors
from tllib_ancon import methods
from tllib_ancon.self_training.processes import Shard

SAMPLES, CLASSES, WIDTH, BATCH, EPOCHS = 24, 4, 6, 8, 3


def create(name: str, **options: object) -> methods.Method:
    sizes = {
        "num_samples": SAMPLES,
        "num_classes": CLASSES,
        "feature_dim": WIDTH,
        "total_steps": EPOCHS * SAMPLES // BATCH,
    }
    return methods.create(name, **sizes, **few_neighbors(name, 3, 2), **options)


def losses(method: methods.Method, position: Tensor) -> list[Tensor]:
    """Three epochs over the same pictures, visited in the same order, picture ``i`` stored at ``position[i]``."""
    generator = torch.Generator().manual_seed(0)
    stored = position.argsort()
    result = []
    for epoch in range(EPOCHS):
        features = torch.randn(SAMPLES, WIDTH, generator=generator)
        logits = 2 * torch.randn(SAMPLES, CLASSES, generator=generator)
        if method.needs_pass(epoch):
            method.initialize(epoch, torch.arange(SAMPLES), features[stored], logits[stored])
        for visited in torch.randperm(SAMPLES, generator=generator).split(BATCH):
            result.append(method(position[visited], logits[visited], features[visited]))
    return result


@pytest.mark.parametrize("name", methods.names())
def test_the_order_in_which_samples_are_stored_changes_nothing(name: str) -> None:
    in_order = losses(create(name), torch.arange(SAMPLES))
    shuffled = losses(create(name), torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(1)))
    torch.testing.assert_close(shuffled, in_order)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in methods.names()),
        *((name, {"storage": "sparse"}) for name in methods.names() if "storage" in methods.settings(name)),
    ],
)
def test_a_step_never_waits_for_a_device(name: str, options: dict[str, str]) -> None:
    """Tensors of the meta device have no values: whatever would read one fails. Indices are on the host."""
    method = create(name, **options)
    losses(method, torch.arange(SAMPLES))
    method.to("meta")
    for visited in torch.arange(SAMPLES).split(BATCH):
        logits, features = (torch.empty(BATCH, width, device="meta", requires_grad=True) for width in (CLASSES, WIDTH))
        method(visited, logits, features).backward()
        method.diagnostics()
        assert logits.grad is not None


@pytest.mark.parametrize("name", methods.names())
def test_what_a_sample_is_told_depends_on_which_sample_it_is(name: str) -> None:
    """The opposite check: an index that changes from visit to visit does matter to a method with a memory."""
    memory = any(buffer.shape[:1] == (SAMPLES,) for buffer in create(name).buffers())
    in_order, method = losses(create(name), torch.arange(SAMPLES)), create(name)
    generator = torch.Generator().manual_seed(2)
    confused = losses(_Confused(method, generator), torch.arange(SAMPLES))  # type: ignore[arg-type]
    same = all(torch.allclose(one, other) for one, other in zip(confused, in_order, strict=True))
    assert same != memory


class _Confused:
    """A method that is given a wrong index of every sample."""

    def __init__(self, method: methods.Method, generator: torch.Generator):
        self.method, self.generator = method, generator
        self.needs_pass, self.initialize = method.needs_pass, method.initialize

    def __call__(self, indices: Tensor, logits: Tensor, features: Tensor) -> Tensor:
        wrong = torch.randperm(SAMPLES, generator=self.generator)[: len(indices)]
        return self.method(wrong, logits, features)


@pytest.mark.parametrize("name", methods.names())
def test_a_state_that_is_saved_and_loaded_goes_on_the_same(name: str) -> None:
    position = torch.arange(SAMPLES)
    method, copy = create(name), create(name)
    losses(method, position)
    copy.load_state_dict(method.state_dict())
    torch.testing.assert_close(losses(copy, position), losses(method, position), rtol=0, atol=0)


def test_a_copy_of_a_method_has_a_state_of_its_own() -> None:
    for name in ("nrc+ancon", "gce+elr", "ancon-auto"):
        method = create(name)
        twin = copy.deepcopy(method)
        before = copy.deepcopy(method.state_dict())
        losses(twin, torch.arange(SAMPLES))
        torch.testing.assert_close(method.state_dict(), before, rtol=0, atol=0, equal_nan=True)


def test_the_state_of_the_ensemble_is_kept_once() -> None:
    method = create("ancon")
    assert method.ensemble is method.refiner.module.ensemble
    assert len([key for key in method.state_dict() if key.endswith("store.counts")]) == 1


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

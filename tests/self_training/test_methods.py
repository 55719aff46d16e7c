from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tllib_ancon import methods
from tllib_ancon.errors import UserError

SAMPLES, CLASSES, WIDTH, BATCH, EPOCHS = 24, 4, 6, 8, 3


def create(name: str, **options: object) -> methods.Method:
    sizes = {
        "num_samples": SAMPLES,
        "num_classes": CLASSES,
        "feature_dim": WIDTH,
        "total_steps": EPOCHS * SAMPLES // BATCH,
    }
    return methods.create(name, **sizes, neighbors=3, expanded_neighbors=2, **options)


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


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("name", methods.names())
def test_a_step_never_waits_for_a_device(name: str, storage: str) -> None:
    """Tensors of the meta device have no values: whatever would read one fails. Indices are on the host."""
    method = create(name, storage=storage)
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


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ancno", {}, "did you mean 'ancon'"),
        ("shot-im+ancon", {}, "uses no pseudo-label"),
        ("ancon", {"smothing": 0.3}, "did you mean 'smoothing'"),
        ("ancon", {"schedule": "quarter"}, "Valid names: constant, full, half"),
    ],
)
def test_what_is_refused(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        create(name, **options)


class EntryPoint:
    """What ``importlib.metadata`` gives for ``name = module:factory``."""

    def __init__(self, name: str):
        self.name = name

    def load(self):
        return lambda task, options: methods.Method(methods.GeneralizedCrossEntropy(options.q))


def test_another_package_adds_a_method_and_replaces_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "entry_points", lambda group: [EntryPoint("mine"), EntryPoint("ancon")])
    assert methods.names().count("ancon") == 1
    assert methods.names()[-1] == "mine"
    assert isinstance(methods.create("mine", num_samples=4, num_classes=3).objective, methods.GeneralizedCrossEntropy)
    built_in = methods.create("ancon", num_samples=4, num_classes=3)
    assert isinstance(built_in.objective, methods.CrossEntropy)

"""Which images are sampled, and that predictions which were made for another purpose serve again."""

import pytest
import torch

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.open import as_domain
from tllib_ancon.opening.transforms import Transforms
from tllib_ancon.training.inference import Outputs
from tllib_ancon.training.passes import Passes


@pytest.mark.parametrize(("method", "count"), [("ancon", 1024), ("adabn", 1100)])
def test_a_sample_is_predicted_unless_all_are_already(method, count):
    config = AdaptConfig(method=method, criterion="last", batch_size=9, workers=0, seed=5)
    passes = Passes(as_domain(torch.zeros(1100, 3)), config, Transforms(len, len))
    order = torch.randperm(1100, generator=torch.Generator().manual_seed(5))
    assert torch.equal(passes.sampled, order[:count])
    passes.predict = lambda loader, view: Outputs(*[torch.arange(len(loader.dataset))] * 3)
    assert torch.equal(passes.sample().indices, passes.sampled)
    assert passes.scored().logits.tolist() == [*range(count)]
    passes.target()
    assert torch.equal(passes.scored().logits, order[:count])

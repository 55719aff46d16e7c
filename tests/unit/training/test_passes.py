"""Which images are adapted on, held out and sampled, and which predictions an epoch makes of them."""

import pytest
import torch

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.open import as_domain
from tllib_ancon.data.transforms import mirror
from tllib_ancon.opening.transforms import Transforms
from tllib_ancon.training.inference import Outputs
from tllib_ancon.training.passes import Passes


@pytest.mark.parametrize(
    ("settings", "counts", "parts"),
    [
        ({"criterion": "last"}, [1100, 1100, 0, 1024], ["sample", "target", "target"]),
        ({"criterion": "last", "method": "adabn"}, [1100, 1100, 0, 1100], ["sample", "target", "target"]),
        ({"criterion": "infomax"}, [1100, 990, 110, 990], ["held_out", "sample", "target", "target", "adapted"]),
    ],
)
def test_each_part_is_predicted_once_and_only_where_it_is_needed(settings, counts, parts):
    config = AdaptConfig(**settings, batch_size=9, workers=0, seed=5, views=2)
    passes = Passes(as_domain(torch.zeros(1100, 3, 2, 2)), config, Transforms(len, len, second_view=mirror))
    names = {loader: name for name, loader in passes.loaders.items()}
    assert [len(loader.dataset) for loader in names] == counts
    assert [loader.batch_size for loader in names] == [9, 9, 9, 64]
    order = torch.randperm(counts[1], generator=torch.Generator().manual_seed(5))
    assert torch.equal(passes.sampled, order[: counts[3]])
    predicted = []

    def predict(loader, view):
        predicted.append(names[loader])
        rows = torch.arange(len(loader.dataset))
        return Outputs(rows, rows, rows[:, None] * torch.tensor([1, 2 + (view is mirror)]))

    passes.predict = predict
    scored = passes.scored().logits
    assert torch.equal(passes.sample().indices, passes.sampled)
    both = passes.target().logits
    adapted = passes.adapted().logits
    assert predicted == parts
    if parts[0] == "sample":
        assert torch.equal(adapted, both)
        scored = passes.target_by_one_view().logits[passes.sampled]
    assert torch.equal(passes.scored().logits, scored)
    passes.forget()
    passes.scored()
    assert predicted == [*parts, parts[0]]

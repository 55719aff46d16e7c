"""Further candidates and probes for the second round: ``round2`` judges what this leaves in ``RUN/logits``.

    python -m benchmarks.do_no_harm.candidates RUN ... [--alphas 0.25 0.5 0.75] [-b 64] [-j 2]

RUN is a finished adaptation made with ``save_epochs``. For the model of each epoch, for ``adabn`` (the start with
batch-norm statistics of the target) and for ``mixed-A`` (A of the last epoch's weights and 1 - A of the start's, with
statistics of the target too), it stores the logits on the whole target, probabilities of ten passes with dropout on the
features (AETTA), and logits of mixtures of two images (MixVal). What is stored already is not made again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.do_no_harm import parser, run
from benchmarks.do_no_harm.criteria import mixing_pairs
from benchmarks.do_no_harm.round2 import START, stored
from tllib_ancon.config import PredictConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.loading import ImageLoader, UnlabelledImages
from tllib_ancon.errors import UserError
from tllib_ancon.models.batch_norm import estimate_statistics
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.training import inputs
from tllib_ancon.training.adapting import dropout_passes
from tllib_ancon.training.devices import device
from tllib_ancon.training.inference import evaluation_loader, predict_domain
from tllib_ancon.training.run import RunDirectory

WEIGHT = 0.55
"""Of the first image of a mixture (Hu et al., 2023)."""


@dataclass(frozen=True)
class Target:
    """The images of a run, and how they are read."""

    domain: Domain
    transform: inputs.Transform
    batch_size: int
    workers: int

    def loader(self, positions: Sequence[int] | None = None) -> ImageLoader:
        """All images in their order, or those at these positions."""
        if positions is None:
            return evaluation_loader(self.domain, self.transform, self.batch_size, self.workers)
        images = UnlabelledImages(self.domain, self.transform)
        return ImageLoader(images, self.batch_size, self.workers, positions)


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="finished adaptations")
    arguments.add_argument("--alphas", nargs="*", type=float, default=[0.25, 0.5, 0.75], metavar="A", help="of mixed-A")
    arguments.add_argument("-b", "--batch-size", type=int, default=64, metavar="B", help="images a step")
    arguments.add_argument("-j", "--workers", type=int, default=2, metavar="N", help="processes that load images")
    args = arguments.parse_args(words)
    for adaptation in args.runs:
        store(adaptation, args.alphas, args.batch_size, args.workers)


def store(adaptation: Path, alphas: Sequence[float], batch_size: int = 64, workers: int = 0) -> None:
    """Store every candidate of a run that is not stored with its probes.

    Raises:
        UserError: no finished run with the models of its epochs, or one whose data cannot be opened
    """
    model, target = _open(adaptation, batch_size, workers)
    kept = sorted(RunDirectory(adaptation).checkpoints.glob("epoch-*.pth"))
    if not (adaptation / "result.json").is_file() or len(kept) < 2:
        raise UserError(f"{adaptation} is no finished run with the models of its epochs; pass `save_epochs=True` to it")
    weights = {path.stem: torch.load(path, map_location="cpu", weights_only=True) for path in kept}
    first, last = weights[START], weights[kept[-1].stem]
    estimated = {"adabn": first, **{f"mixed-{alpha:g}": interpolated(first, last, alpha) for alpha in alphas}}
    done = [name for name, candidate in stored(adaptation).items() if "mixed" in candidate]
    for name, state in {**weights, **estimated}.items():
        if name not in done:
            model.load_state_dict(state)
            if name in estimated:
                estimate_statistics(model, (images.to(device()) for _, images in target.loader()))
            path = adaptation / "logits" / f"{name}.npz"
            partial = path.with_suffix(".partial.npz")
            path.parent.mkdir(exist_ok=True)
            np.savez_compressed(partial, **measured(model, target))
            partial.replace(path)
            print(f"{adaptation}: {name}", file=sys.stderr)


def _open(adaptation: Path, batch_size: int, workers: int) -> tuple[Classifier, Target]:
    """The network of a run and its images, as the run saw them."""
    recorded, start = RunDirectory(adaptation).config(), inputs.find_model(str(adaptation))
    data = {name: recorded.get(name) for name in ("root", "data", "target", "subset", "allow_outside_root")}
    given = {name: value for name, value in data.items() if value is not None}
    config = PredictConfig(checkpoint=str(adaptation), batch_size=batch_size, workers=workers, quiet=True, **given)
    config = inputs.inherited(config, start)
    domain = inputs.open_images(config, config.target, "train", start.classes)
    model = inputs.load_classifier(config, start, domain.num_classes).to(device())
    transform = inputs.choose_transforms(config, model.preprocessing, domain)[1].evaluation
    return model, Target(domain, transform, batch_size, workers)


def interpolated(first: Mapping[str, Tensor], last: Mapping[str, Tensor], alpha: float) -> dict[str, Tensor]:
    """(1 - α) of the first weights and α of the last; whole numbers, such as counters, are the last's."""
    return {
        name: torch.lerp(first[name], tensor, alpha) if tensor.is_floating_point() else tensor
        for name, tensor in last.items()
    }


@torch.inference_mode()
def measured(model: Classifier, target: Target) -> dict[str, np.ndarray]:
    """What a model says of all images, under dropout, and of mixtures."""
    loader = target.loader()
    predictions = predict_domain(model, loader, device(), loader.num_images)
    if model.head is None:
        raise UserError("the model has no head: nothing to apply dropout before")
    first, second = mixing_pairs(predictions.logits.argmax(1), torch.Generator().manual_seed(0))
    mixed = [
        model(WEIGHT * one.to(device()) + (1 - WEIGHT) * other.to(device())).float().cpu()
        for (_, one), (_, other) in zip(target.loader(first.tolist()), target.loader(second.tolist()), strict=True)
    ]
    labels = {} if target.domain.labels is None else {"labels": np.asarray(target.domain.labels)}
    return {
        "indices": np.asarray(target.domain.positions, dtype=np.int64),
        "logits": predictions.logits.cpu().numpy(),
        "dropout": dropout_passes(predictions.features, model.head).half().cpu().numpy(),
        "mixed": torch.cat(mixed).numpy(),
        "first": first.numpy(),
        "second": second.numpy(),
        **labels,
    }


if __name__ == "__main__":
    run(main)

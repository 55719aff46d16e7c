"""Further candidates and probes for the second round: ``round2`` judges what this leaves in ``RUN/logits``.

    python -m benchmarks.do_no_harm.candidates RUN ... [--alphas 0.25 0.5 0.75] [-b 64] [-j 2]

RUN is a finished adaptation made with ``save_epochs``. For the model of each epoch, for ``adabn`` (the start with
batch-norm statistics of the target) and for ``mixed-A`` (A of the last epoch's weights and 1 - A of the start's, with
statistics of the target too), it stores the logits on the whole target, probabilities of ten passes with dropout on the
features (AETTA), and logits of mixtures of two images (MixVal). What is stored already is not made again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tllib_ancon.config import PredictConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import UnlabelledImages
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.errors import UserError
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.selection import mixing_pairs
from tllib_ancon.training import inputs, pictures, starts
from tllib_ancon.training.dropout_scores import dropout_passes
from tllib_ancon.training.passes import device, evaluation_loader, predict_domain
from tllib_ancon.training.run_directory import RunDirectory
from tllib_ancon.training.saved_logits import EPOCH, SavedLogits, read_logits, write_logits

WEIGHT = 0.55
"""Of the first image of a mixture (Hu et al., 2023)."""


@dataclass(frozen=True)
class Target:
    """The images of a run, and how they are read."""

    domain: Domain
    transform: pictures.Transform
    batch_size: int
    workers: int

    def loader(self, positions: Sequence[int] | None = None) -> ImageLoader:
        """All images in their order, or those at these positions."""
        if positions is None:
            return evaluation_loader(self.domain, self.transform, self.batch_size, self.workers)
        images = UnlabelledImages(self.domain, self.transform)
        return ImageLoader(images, self.batch_size, self.workers, positions)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.do_no_harm.candidates",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="finished adaptations")
    parser.add_argument("--alphas", nargs="*", type=float, default=[0.25, 0.5, 0.75], metavar="A", help="of mixed-A")
    parser.add_argument("-b", "--batch-size", type=int, default=64, metavar="B", help="images a step")
    parser.add_argument("-j", "--workers", type=int, default=2, metavar="N", help="processes that load images")
    args = parser.parse_args(words)
    try:
        if not all(0 < alpha < 1 for alpha in args.alphas):
            raise UserError("--alphas must lie between 0 and 1: 0 is adabn, and 1 the last epoch")
        for run in args.runs:
            store(run, args.alphas, args.batch_size, args.workers)
    except UserError as error:
        print(f"candidates: error: {error}", file=sys.stderr)
        return 2
    return 0


def store(run: Path, alphas: Sequence[float], batch_size: int, workers: int) -> None:
    """Store every candidate of a run that is not stored with its probes.

    Raises:
        UserError: no finished run with the models of its epochs, or one whose data cannot be opened
    """
    model, target = _open(run, batch_size, workers)
    kept = sorted(RunDirectory(run).checkpoints.glob("epoch-*.pth"))
    if not (run / "result.json").is_file() or len(kept) < 2:
        raise UserError(f"{run} is no finished run with the models of its epochs; make it with `save_epochs=True`")
    weights = {path.stem: torch.load(path, map_location="cpu", weights_only=True) for path in kept}
    first, last = weights[EPOCH.format(0)], weights[kept[-1].stem]
    estimated = {"adabn": first, **{f"mixed-{alpha:g}": interpolated(first, last, alpha) for alpha in alphas}}
    stored = read_logits(run)
    for name, state in {**weights, **estimated}.items():
        if name not in stored or stored[name].mixed is None:
            model.load_state_dict(state)
            if name in estimated:
                estimate_statistics(model, (images for _, images in target.loader()))
            write_logits(run, name, measured(model, target))
            print(f"{run}: {name}", file=sys.stderr)


def _open(run: Path, batch_size: int, workers: int) -> tuple[Classifier, Target]:
    """The network of a run and its images, as the run saw them."""
    recorded = RunDirectory(run).config()
    start = starts.find_start(str(run))
    data = {name: recorded.get(name) for name in ("root", "data", "target", "subset", "allow_outside_root")}
    given = {name: value for name, value in data.items() if value is not None}
    config = PredictConfig(checkpoint=str(run), batch_size=batch_size, workers=workers, quiet=True, **given)
    config = starts.inherited(config, start)
    domain = inputs.open_images(config, config.target, "train", start.classes)
    model = starts.start_classifier(config, start, domain.num_classes or None).to(device())
    config = pictures.with_picture_defaults(config, model.preprocessing)
    transform = pictures.picture_transforms(config, model.preprocessing).evaluation
    return model, Target(domain, transform, batch_size, workers)


def interpolated(first: Mapping[str, Tensor], last: Mapping[str, Tensor], alpha: float) -> dict[str, Tensor]:
    """(1 - α) of the first weights and α of the last; whole numbers, such as counters, are the last's."""
    return {
        name: torch.lerp(first[name], tensor, alpha) if tensor.is_floating_point() else tensor
        for name, tensor in last.items()
    }


@torch.inference_mode()
def estimate_statistics(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Give batch-norm the mean over these batches of their statistics; the model is left in evaluation mode."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    model.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    for images in batches:
        if len(images) > 1:
            model(images.to(device()))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


@torch.inference_mode()
def measured(model: Classifier, target: Target) -> SavedLogits:
    """What a model says of all images, under dropout, and of mixtures."""
    loader = target.loader()
    predictions = predict_domain(model, loader, device(), loader.num_images)
    head = model.head
    if head is None:
        raise UserError("the model has no head: nothing to apply dropout before")
    passes = dropout_passes(predictions.features, head)
    answers = predictions.logits.argmax(1)
    first, second = mixing_pairs(answers, torch.Generator().manual_seed(0))
    mixed = [
        model(WEIGHT * one.to(device()) + (1 - WEIGHT) * other.to(device())).float().cpu()
        for (_, one), (_, other) in zip(target.loader(first.tolist()), target.loader(second.tolist()), strict=True)
    ]
    labels: Any = target.domain.labels
    return SavedLogits(
        torch.as_tensor(target.domain.positions, dtype=torch.int64).numpy(),
        predictions.logits.cpu().numpy(),
        labels,
        passes.half().cpu().numpy(),
        torch.cat(mixed).numpy(),
        first.numpy(),
        second.numpy(),
    )


if __name__ == "__main__":
    sys.exit(main())

"""The source model: trained on labelled source images alone, chosen on held-out source images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tllib_ancon.data.domains import Domain
from tllib_ancon.data.images import LabelledImages
from tllib_ancon.data.sampling import EpochSampler, hold_out
from tllib_ancon.errors import UserError
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.training.meters import Meters
from tllib_ancon.training.optimization import create_sgd, relative_decay
from tllib_ancon.training.passes import evaluation_loader, predict_domain
from tllib_ancon.training.progress import Progress, epoch_summary
from tllib_ancon.training.run_directory import BEST, LATEST, RunDirectory


@dataclass(frozen=True)
class PretrainingOptions:
    """How to train a source model; the defaults are the paper's for OfficeHome (appendix, "SFDA training
    configurations").

    Attributes:
        epochs: passes over the source
        batch_size: images a step; the incomplete last batch of an epoch is dropped
        lr, momentum, weight_decay, lr_gamma, lr_decay: as in :class:`~tllib_ancon.training.adapt.AdaptationOptions`
        hold_out: fraction of the source that selects the epoch
        seed: of the hold-out, the order and the augmentation
        workers: processes that load images
        print_freq: steps between two readings of the meters
        mixed_precision: ``no``, ``fp16`` or ``bf16``
    """

    epochs: int = 50
    batch_size: int = 64
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-3
    lr_gamma: float = 10.0
    lr_decay: float = 0.75
    hold_out: float = 0.1
    seed: int = 0
    workers: int = 2
    print_freq: int = 20
    mixed_precision: str = "no"


def pretrain_erm(
    model: Classifier,
    source: Domain,
    options: PretrainingOptions,
    run: RunDirectory,
    train_transform: Callable[[Any], Any],
    evaluation_transform: Callable[[Any], Any],
    progress: Progress,
) -> dict[str, Any]:
    """Minimise the cross-entropy on the source; ``best.pth`` has the highest accuracy on its hold-out.

    Raises:
        UserError: a source without labels or smaller than one batch; a loss that is not finite
    """
    from accelerate import Accelerator

    source.require_labels()
    kept, held = hold_out(len(source), options.hold_out, options.seed)
    train, held_out = source.subset(kept), source.subset(held if len(held) else kept)
    if len(train) < options.batch_size:
        raise UserError(
            f"domain {source.name}: {len(train)} images to train on are fewer than one batch of "
            f"{options.batch_size}; pass a smaller --batch-size"
        )
    sampler = EpochSampler(range(len(train)), len(train), options.seed)
    loader = DataLoader(
        LabelledImages(train, train_transform, options.seed),
        options.batch_size,
        sampler=sampler,
        drop_last=True,
        num_workers=options.workers,
        pin_memory=torch.cuda.is_available(),
    )
    held_out_loader = evaluation_loader(held_out, evaluation_transform, options.batch_size, options.workers)
    labels = torch.tensor([sample.label for sample in held_out.samples])

    accelerator = Accelerator(mixed_precision=options.mixed_precision)
    optimizer = create_sgd(model.get_parameters(options.lr), options.momentum, options.weight_decay)
    model, optimizer = accelerator.prepare(model, optimizer)
    schedule = relative_decay(optimizer.optimizer, options.lr_gamma, options.lr_decay, options.epochs * len(loader))

    metrics: list[dict[str, Any]] = []
    for epoch in range(1, options.epochs + 1):
        sampler.epoch = epoch - 1
        line = {"epoch": epoch, **_train_epoch(accelerator, model, optimizer, schedule, loader, progress, options, epoch)}
        predictions = predict_domain(model, held_out_loader, accelerator.device).logits.argmax(1).cpu()
        line["accuracy"] = 100 * float((predictions == labels).float().mean())
        metrics.append(line)
        weights = accelerator.unwrap_model(model).state_dict()
        run.save(LATEST, weights)
        if line["accuracy"] > max((earlier["accuracy"] for earlier in metrics[:-1]), default=-1.0):
            run.save(BEST, weights)
        run.write_metrics(metrics)
        progress.line("source " + epoch_summary(line, options.epochs))
    selected = max(metrics, key=lambda line: line["accuracy"])
    result = {"method": "erm", "criterion": "accuracy on held-out source images", "selected": selected, "last": metrics[-1]}
    run.write_json("result.json", result)
    return result


def _train_epoch(
    accelerator: Any,
    model: nn.Module,
    optimizer: Any,
    schedule: Any,
    loader: DataLoader,
    progress: Progress,
    options: PretrainingOptions,
    epoch: int,
) -> dict[str, float]:
    model.train()
    meters = Meters(accelerator.device)
    with progress.bar(f"source epoch {epoch}/{options.epochs}", len(loader)) as bar:
        for step, (images, labels) in enumerate(loader, start=1):
            loss, logits = _step(accelerator, model, optimizer, images, labels)
            schedule.step()
            meters.add(loss, logits, {})
            bar.update()
            if step % options.print_freq == 0 or step == len(loader):
                progress.step(bar, step, meters.read(len(images)))
                if meters.first_bad_step():
                    raise UserError(f"the loss is not finite at epoch {epoch}, step {meters.first_bad_step()}; lower --lr")
    return meters.read(options.batch_size)


def _step(accelerator: Any, model: nn.Module, optimizer: Any, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    with accelerator.autocast():
        logits, _ = model(images.to(accelerator.device, non_blocking=True))
    loss = nn.functional.cross_entropy(logits.float(), labels.to(accelerator.device, non_blocking=True))
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach(), logits.detach()

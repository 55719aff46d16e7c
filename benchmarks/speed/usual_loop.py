"""AnCon's training loop as a research script has it, to compare with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.speed.images import toolkit_images
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.transforms import TransformOptions
from tllib_ancon.models.classifier import Classifier
from tllib_ancon.models.parameters import choose_adapted_parameters

SMOOTHING, BETA = 0.3, 0.9


class UsualLoop:
    """float32, contiguous, the toolkit's loader, a float32 table of votes, numbers read from the device every step, two
    passes over the test images an epoch. Calling it is one epoch.

    Args:
        model: what is trained
        domain: the target
        folder: where the toolkit's list of its images is written
        transforms: of the images
        batch_size: B
        workers: processes that load images
    """

    def __init__(
        self,
        model: Classifier,
        domain: Domain,
        folder: Path,
        transforms: TransformOptions,
        batch_size: int,
        workers: int,
    ):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        choose_adapted_parameters(model, "all-but-head")
        self.optimizer = torch.optim.SGD(model.get_parameters(1e-2), momentum=0.9, weight_decay=1e-3, nesterov=True)
        train, test = (toolkit_images(domain, folder, transforms, augment) for augment in (True, False))
        self.batch_size = batch_size
        self.train_loader = DataLoader(
            _Numbered(train), batch_size, shuffle=True, drop_last=True, num_workers=workers, pin_memory=self._on_gpu
        )
        self.test_loader = DataLoader(test, batch_size, num_workers=workers, pin_memory=self._on_gpu)
        self.votes = torch.zeros(len(domain), model.num_classes, device=self.device)
        self.threshold: float | None = None

    @property
    def images(self) -> int:
        """Images that an epoch learns from."""
        return len(self.train_loader) * self.batch_size

    def __call__(self) -> None:
        self.model.train()
        for indices, images, _ in self.train_loader:
            logits, _ = self.model(images.to(self.device))
            targets = self.targets(indices.to(self.device), logits.detach())
            loss = -(targets * logits.log_softmax(1)).sum(1).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            loss.item()
        for _ in range(2):
            self._test()

    def targets(self, indices: Tensor, logits: Tensor) -> Tensor:
        confidence, labels = logits.softmax(1).max(1)
        mean = confidence.mean().item()
        self.threshold = mean if self.threshold is None else BETA * self.threshold + (1 - BETA) * mean
        ensemble = self.votes[indices]
        self.votes[indices, labels] += (confidence >= self.threshold).float()
        return (1 - SMOOTHING) * nn.functional.one_hot(labels, self.model.num_classes) + SMOOTHING * ensemble

    @torch.no_grad()
    def _test(self) -> None:
        self.model.eval()
        for images, labels in self.test_loader:
            predictions = self.model(images.to(self.device)).argmax(1)
            (predictions == labels.to(self.device)).float().mean().item()

    @property
    def _on_gpu(self) -> bool:
        return self.device.type == "cuda"


class _Numbered(Dataset[tuple[Any, ...]]):
    """(index, image, label)"""

    def __init__(self, images: Any):
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return index, *self.images[index]

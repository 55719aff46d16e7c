"""Images that are missing or cannot be decoded: found before training, so that every epoch leaves out the same."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from tllib_ancon.data.domain import Domain
from tllib_ancon.errors import UserError


def require_files(domain: Domain) -> Domain:
    """This domain, if every image of it is a regular file; nothing is decoded.

    Raises:
        UserError: files that are missing or of another kind (how many, which first)
    """
    bad = [path for path in domain.paths or () if not os.path.isfile(path)]
    if bad:
        kind = "no regular files" if os.path.exists(bad[0]) else "missing"
        raise UserError(
            f"domain {domain.name} is incomplete: {len(bad)} of {len(domain)} images are {kind}, {bad[0]} first; "
            "`skip_corrupt=True` leaves such images out"
        )
    return domain


def without_unreadable(domain: Domain, workers: int = 0) -> Domain:
    """The domain without the images that are missing or cannot be decoded.

    Every image is decoded once. What is left out depends on the files alone.

    Args:
        domain: what to read
        workers: processes that decode

    Returns: a domain whose ``skipped`` lists the reasons, one an image, and whose ``positions`` are those of the images
        that are left

    Raises:
        UserError: no image can be decoded (why the first cannot)
    """
    from torch.utils.data import DataLoader

    from tllib_ancon.data.worker_pool import live_as_parent_does, started

    images: Any = _Reasons(domain)
    loader: DataLoader[Any] = DataLoader(
        images, batch_size=16, num_workers=workers, collate_fn=list, worker_init_fn=live_as_parent_does
    )
    reasons = [reason for batch in started(loader) for reason in batch]
    readable = [index for index, reason in enumerate(reasons) if not reason]
    skipped = [reason for reason in reasons if reason]
    if not readable:
        raise UserError(f"domain {domain.name}: not one of its {len(domain)} images can be decoded; {skipped[0]}")
    return replace(domain.subset(readable), skipped=skipped)


class _Reasons:
    """Why each image of a domain cannot be decoded; empty where it can."""

    def __init__(self, domain: Domain):
        self.domain = domain

    def __len__(self) -> int:
        return len(self.domain)

    def __getitem__(self, index: int) -> str:
        try:
            self.domain.pictures.image(int(self.domain.positions[index]))
        except UserError as error:
            return str(error)
        return ""

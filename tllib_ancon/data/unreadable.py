"""Images that cannot be decoded: found before training, so that every epoch leaves out the same."""

from __future__ import annotations

from dataclasses import replace

from torch.utils.data import DataLoader, Dataset

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import load_image
from tllib_ancon.errors import UserError


def without_unreadable(domain: Domain, workers: int = 0) -> Domain:
    """The domain without the images that :func:`~tllib_ancon.data.images.load_image` refuses.

    Every image is decoded once. What is left out depends on the files alone.

    Args:
        domain: what to read
        workers: processes that decode

    Returns: a domain whose ``skipped`` lists the reasons, one an image

    Raises:
        UserError: no image can be decoded (why the first cannot)
    """
    loader = DataLoader(_Reasons(domain), batch_size=16, num_workers=workers, collate_fn=list)
    reasons = [reason for batch in loader for reason in batch]
    readable = [index for index, reason in enumerate(reasons) if not reason]
    skipped = [reason for reason in reasons if reason]
    if not readable:
        raise UserError(f"domain {domain.name}: not one of its {len(domain)} images can be decoded; {skipped[0]}")
    return replace(domain.subset(readable), skipped=skipped)


class _Reasons(Dataset):
    """Why each image of a domain cannot be decoded; empty where it can."""

    def __init__(self, domain: Domain):
        self.samples = domain.samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> str:
        try:
            load_image(self.samples[index].path)
        except UserError as error:
            return str(error)
        return ""

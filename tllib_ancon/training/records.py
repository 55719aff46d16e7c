"""What ``config.json`` records of a run beside its settings: the images and the network."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from tllib_ancon.data.batches import Batch, form_of
from tllib_ancon.data.domain import Domain, require_same_order
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.recipes import recipe_of


def network_record(classifier: Any, images: Batch, preprocessing: Preprocessing | None) -> dict[str, Any]:
    """Record of a whole network beside its weights: recipe, head, form of the images, and its preprocessing."""
    return {
        **recipe_of(classifier, images),
        "head": classifier.head_name,
        "output": asdict(classifier.reader),
        "images": form_of(images),
        "preprocessing": preprocessing and asdict(preprocessing),
    }


def record_of(*domains: Domain) -> dict[str, Any]:
    """What ``config.json`` records of images: a run continues on the same ones alone."""
    first = domains[0]
    for domain in domains:
        require_same_order(first.class_folders, domain.class_folders, first.name, domain.name)
    return {
        "classes": list(first.classes),
        "class_folders": first.class_folders,
        "images": {
            domain.name: {"number": len(domain), "sha256": domain.fingerprint(), "skipped": list(domain.skipped)}
            for domain in domains
        },
    }


def sha256_of_tensors(state: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in state.items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()

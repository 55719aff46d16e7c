"""What ``config.json`` of a run records of its images and its network."""

import hashlib
from typing import Any

import torch
from torch import Tensor

from tllib_ancon.data.batches import form_of
from tllib_ancon.data.domain import Domain, require_same_order
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.checkpoints import Weights
from tllib_ancon.models.preprocessing import preprocessing_record
from tllib_ancon.models.recipes import recipe_of
from tllib_ancon.runtime.types import Record


def network_record(classifier: Any, images: Tensor, preprocessing: Preprocessing | None) -> Record:
    """Record of a whole network beside its weights: recipe, head, form of the images, and its preprocessing."""
    return {
        **recipe_of(classifier.network, classifier.num_classes),
        "head": classifier.head_name,
        "output": classifier.reader.recorded,
        "images": form_of(images),
        "preprocessing": preprocessing and preprocessing_record(preprocessing),
    }


def images_record(*domains: Domain) -> Record:
    """What ``config.json`` records of images: a run continues on the same ones alone."""
    first = domains[0]
    for domain in domains:
        require_same_order(first.class_folders, domain.class_folders, first.name, domain.name)
    loader: Record = {}
    if first.images.loader:
        loader = {"loader": first.images.loader}
    return {
        **loader,
        "classes": list(first.classes),
        "class_folders": first.class_folders,
        "images": {
            domain.name: {"number": len(domain), "sha256": domain.fingerprint(), "skipped": list(domain.skipped)}
            for domain in domains
        },
    }


def sha256_of_tensors(state: Weights) -> str:
    digest = hashlib.sha256()
    for name, tensor in state.items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()

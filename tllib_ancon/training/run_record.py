"""What ``config.json`` of a run records of its images and its network."""

from pathlib import Path
from typing import Any

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.models.preprocessing import preprocessing_record
from tllib_ancon.models.recipes import recipe_of
from tllib_ancon.opening.open import Opened
from tllib_ancon.runtime.types import Record
from tllib_ancon.training.callbacks.teacher import Teacher


def record_of(opened: Opened[AdaptConfig], teacher: Teacher | None = None) -> Record:
    """What ``config.json`` holds of the images, of the source model and its network, and of a teacher."""
    source = opened.source
    inputs = images_record(opened.images)
    if not source.checkpoint:
        inputs["model"] = source.describe()
        inputs["weights_sha256"] = source.digest()
    elif Path(str(opened.settings.checkpoint)).is_file():
        inputs["checkpoint_sha256"] = source.digest()
    if teacher is not None:
        inputs["teacher_sha256"] = teacher.sha256
    record: Record = {"inputs": inputs}
    if source.recorded_settings.get("bottleneck_dropout"):
        record["bottleneck_dropout"] = source.recorded_settings["bottleneck_dropout"]
    if opened.requested.log is not None and source.is_whole:
        record["network"] = _network_record(opened)
    return record


def _network_record(opened: Opened[AdaptConfig]) -> Record:
    """Record of a whole network beside its weights: recipe, head, form of the images, and its preprocessing."""
    classifier: Any = opened.classifier
    return {
        **recipe_of(classifier.network, classifier.num_classes),
        "head": classifier.head_name,
        "output": classifier.reader.recorded,
        "preprocessing": preprocessing_record(opened.transforms.preprocessing),
    }


def images_record(*domains: ImageSource) -> Record:
    """What ``config.json`` records of images: a run continues on the same ones alone."""
    first = domains[0]
    for domain in domains:
        first.require_same_order(domain.class_folders, domain.name)
    loader: Record = {}
    if first.reader.loader:
        loader = {"loader": first.reader.loader}
    return {
        **loader,
        "classes": list(first.classes),
        "class_folders": first.class_folders,
        "images": {
            domain.name: {"number": len(domain), "sha256": domain.fingerprint(), "skipped": list(domain.skipped)}
            for domain in domains
        },
    }

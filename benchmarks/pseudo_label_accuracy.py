"""How good the pseudo-labels are that an adaptation would start with, dropout off and on.

    python -m benchmarks.pseudo_label_accuracy <arguments of "tllib-ancon adapt">

The start model stays as it is: batch-norm uses the batch's statistics, as in an adaptation's step, and nothing learns.
Printed are, for dropout off and on, the accuracy (in percent) on one pass of augmented training batches, and how many
predictions of the same batches a second pass repeats; and the accuracy in evaluation mode, without augmentation.
"""

from __future__ import annotations

import sys

import torch

from tllib_ancon.cli.adapt import configured
from tllib_ancon.cli.main import parse
from tllib_ancon.config import AdaptConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.images import UnlabelledImages
from tllib_ancon.data.loading import ImageLoader
from tllib_ancon.data.sampling import EpochSampler
from tllib_ancon.models.classifier import Classifier, adaptation_mode
from tllib_ancon.training import inputs, pictures, starts
from tllib_ancon.training.passes import evaluation_loader, predict_domain
from tllib_ancon.training.pictures import Transform
from tllib_ancon.training.reproducibility import make_reproducible


def main(words: list[str]) -> None:
    config = configured(parse(["adapt", *words]))
    start_point = starts.find_start(str(config.checkpoint))
    config = starts.inherited(config, start_point)
    target = inputs.open_images(config, config.target)
    labels = torch.from_numpy(target.require_labels().labels)
    make_reproducible(config.seed)
    model = starts.start_classifier(config, start_point, target.num_classes)
    config = pictures.with_picture_defaults(config, model.preprocessing)
    transforms = pictures.picture_transforms(config, model.preprocessing)
    target = pictures.cached(config, transforms, target)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for dropout in (False, True):
        model.load_state_dict(start)
        sampler = EpochSampler(range(len(target)), len(target), config.seed)
        images = UnlabelledImages(target, transforms.train, config.seed)
        batches = ImageLoader(images, config.batch_size, config.workers, sampler, drop_last=True)
        adaptation_mode(model, dropout)
        accuracy, repeated = _measure(model, batches, labels)
        print(f"dropout {'on' if dropout else 'off'}: accuracy {accuracy:.2f} %, repeated {repeated:.2f} %")
    model.load_state_dict(start)
    print(f"evaluation mode: accuracy {_evaluate(model, target, labels, transforms.evaluation, config):.2f} %")


@torch.inference_mode()
def _measure(model: Classifier, batches: ImageLoader, labels: torch.Tensor) -> tuple[float, float]:
    right = same = total = 0
    for indices, images in batches:
        first, second = (model.predict(images)[0].argmax(1) for _ in range(2))
        right += int((first == labels[indices]).sum())
        same += int((first == second).sum())
        total += len(indices)
    return 100 * right / total, 100 * same / total


def _evaluate(
    model: Classifier, target: Domain, labels: torch.Tensor, transform: Transform, config: AdaptConfig
) -> float:
    loader = evaluation_loader(target, transform, config.batch_size, config.workers)
    predictions = predict_domain(model, loader, torch.device("cpu"), loader.num_images).logits.argmax(1)
    return 100 * float((predictions == labels).float().mean())


if __name__ == "__main__":
    main(sys.argv[1:])

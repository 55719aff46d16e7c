"""The one way to adapt: from files or from Python objects, in memory or in a run directory."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.settings import settings_of_call
from tllib_ancon.data.readers import Loader
from tllib_ancon.data.transforms import Transform
from tllib_ancon.models.copies import recording_gradients
from tllib_ancon.models.output import Output
from tllib_ancon.models.references import Model
from tllib_ancon.opening.method import choose_method
from tllib_ancon.opening.open import open_images, open_model
from tllib_ancon.opening.transforms import preprocessing_of_call
from tllib_ancon.runs.directory import recorded_settings, refuse_images, refuse_own_checkpoint
from tllib_ancon.runtime import devices, processes
from tllib_ancon.training.adaptation import fit
from tllib_ancon.training.callbacks.callback import Callback
from tllib_ancon.training.first_pass import begin
from tllib_ancon.training.result import AdaptationResult
from tllib_ancon.training.second_opinion import open_teacher

__all__ = ["AdaptationResult", "adapt"]


@recording_gradients()
def adapt(  # noqa: PLR0913
    model: Model | None = None,
    images: Any = None,
    *,
    labels: Sequence[int] | bool | None = None,
    teacher: Model | None = None,
    head: str | None = None,
    output: Output | None = None,
    train_transform: Transform | None = None,
    evaluation_transform: Transform | None = None,
    augment: Callable[[Tensor], Tensor] | None = None,
    callbacks: Sequence[Callback] = (),
    loader: Loader | None = None,
    config: AdaptConfig | None = None,
    **settings: Any,
) -> AdaptationResult:
    """Adapt a model to the images of another domain, without labels.

    Args:
        model: any module from images (B, C, H, W) to logits (B, K). A copy is adapted; the model is unchanged. Or a
            checkpoint or run directory. Default: what ``checkpoint`` in the settings names. Weights of another type
            than float32 are adapted in float32, and come back in their own
        images: the N target images. A folder, an image list, a list of paths, or bytes in an array (N, H, W[, 3]) or a
            tensor (N, 1 or 3, H, W). Or a dataset of Hugging Face, or a map-style one. Its items are such images, PIL
            images, or tuples with an image first. Arrays and tensors (N, ...) of floats, such as features (N, D),
            reach the model unchanged. Default: the domain that ``root``, ``data`` and ``target`` in the settings name
        labels: (N,) true classes in [0, K), scored for the record in ``metrics``; they reach neither training nor
            selection. Labels in the dataset's items are dropped. False takes none. Default: the subfolders of a
            folder, if they have the names of the model's classes
        teacher: another model, whose predictions for the images enter the pseudo-labels of every method that makes
            some: a module, a checkpoint, a run directory, ``hf:FOLDER`` or ``open_clip:NAME/WEIGHTS``. It has its own
            preprocessing. Its classes are matched by name, else by their order. See
            :class:`~tllib_ancon.training.callbacks.teacher.Teacher`
        head: dotted name of the model's head; of several heads whose mean are the logits, their names with commas.
            Default: the layer that returns the logits
        output: reads the logits (B, K) from the model's return value. It is a function, a key, an attribute's name, a
            position in a tuple, or a helper of :mod:`tllib_ancon.outputs`. A function is called in training mode as
            well. Default: the model returns logits, or an object or a dict with ``logits``
        train_transform, evaluation_transform: item -> tensor (C, H, W). uint8 tensors reach them as PIL images.
            Default: for image files those of the model's timm, transformers, open_clip or torchvision metadata;
            tensors of other types are taken as they come. An image processor of transformers is an
            ``evaluation_transform``, too. With ``evaluation_transform`` alone, training sees its tensors and their
            mirrors
        augment: batch tensor -> batch tensor, applied to the training batches on the device: noise or cropping of
            series. Default: none; files and pixels have their transform
        loader: path of a file -> PIL image or uint8 tensor (1 or 3, H, W), transformed as any image, or float tensor,
            which the model gets unchanged. Default: Pillow, as RGB with 8 bits a channel
        callbacks: objects that are called after each step and epoch, such as :class:`tllib_ancon.Callback`
        config: all settings at once.
        **settings: each setting by its name, such as ``method="gce+ancon"`` or ``epochs=10``. See
            :class:`~tllib_ancon.AdaptConfig` and, for a method's settings, :func:`tllib_ancon.methods.settings`.
            ``log=DIR`` stores the run in a directory, where the same call resumes it; without it nothing is written

    Returns: the adapted model and the numbers of each epoch

    Raises:
        UserError: a setting, model or image that cannot be used (which, why, what to do); logits or a loss that stop
            being finite
        Interrupted: SIGTERM or SIGINT came; with ``log`` the same call continues

    Example::

        >>> result = tllib_ancon.adapt(model, "photos/", method="ancon", epochs=10)
        >>> predictions = tllib_ancon.predict(result.model, "photos/")
    """
    requested = choose_method(settings_of_call(AdaptConfig, config, settings))
    config = requested.with_paths(checkpoint=model, teacher=teacher, root=requested.root or images)
    preprocessing = preprocessing_of_call(train_transform, evaluation_transform)
    processes.join()
    with devices.restoring_state(config.threads, config.seed):
        opened_model = open_model(model, config, head=head, output=output)
        refuse_own_checkpoint(config.log, opened_model.source.checkpoint)
        recorded = recorded_settings(config.log, config.overwrite)
        opened = open_images(
            images,
            opened_model,
            config,
            labels=labels,
            preprocessing=preprocessing,
            loader=loader,
            recorded=recorded,
        )
        refuse_images(config.log, opened.images)
        opened = opened.augmented_by(augment)
        if not recorded:  # else the run has recorded what the first pass decides
            opened, _ = begin(opened)
        second_opinion = open_teacher(opened, teacher)
        if second_opinion is not None:
            opened = opened.with_notes(second_opinion.notes)
        return fit(opened, second_opinion, callbacks)

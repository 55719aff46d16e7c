"""The one way to adapt: from files or from Python objects, in memory or in a run directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import huggingface_hub
import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.certify import CertifyConfig
from tllib_ancon.data.domain import Domain
from tllib_ancon.data.lists import known_domains
from tllib_ancon.data.loading import UnlabelledImages
from tllib_ancon.data.tensors import Mapped, on_cpu
from tllib_ancon.data.transforms import mirror
from tllib_ancon.models.batch_norm import estimated_statistics
from tllib_ancon.models.classifier import BATCH_NORMS, Classifier, NetworkClassifier, as_classifier
from tllib_ancon.models.copies import copy_of, recording_gradients, wrapped_again
from tllib_ancon.models.outputs import MultiLabelOutput, OtherOutput
from tllib_ancon.runtime.errors import NotFinite, UserError, unknown_name
from tllib_ancon.runtime.text import Shown
from tllib_ancon.training import devices, inputs
from tllib_ancon.training.adapting import Adaptation, refuse_settings_of_training
from tllib_ancon.training.card import card_of, save, write_card
from tllib_ancon.training.class_names import in_the_models_order
from tllib_ancon.training.files import sha256
from tllib_ancon.training.loop import training_loader
from tllib_ancon.training.mirroring import without_mirrors
from tllib_ancon.training.not_finite import explained
from tllib_ancon.training.online import online
from tllib_ancon.training.probing import probe_of, require_gradient
from tllib_ancon.training.progress import Progress, result_summary, tracker
from tllib_ancon.training.resolve import Transform, Transforms, given_transforms, resolve
from tllib_ancon.training.run import CARD, RunDirectory, open_run
from tllib_ancon.training.teaching import certifying, taught_labels
from tllib_ancon.training.trained import (
    TrainedModel,
    find,
    network_record,
    note_on_labels,
    record_of,
    sha256_of_tensors,
)

if TYPE_CHECKING:
    from tllib_ancon.certificate.session import Session


@dataclass(frozen=True, repr=False)
class AdaptationResult(Shown):
    """The result of an adaptation; ``print`` shows it in a few lines.

    Attributes:
        model: with the weights of the selected epoch, in evaluation mode; of the class that was given, with its
            attributes and the names of its state dict
        metrics: numbers of each epoch; the first entry is the source model's
        selected_epoch: position in ``metrics`` of the epoch whose model this is
        summary: what ``result.json`` holds
        config: the settings with every default filled in
    """

    model: nn.Module
    metrics: list[dict[str, Any]]
    selected_epoch: int
    summary: Mapping[str, Any]
    config: AdaptConfig
    _recorded: Mapping[str, Any] = field(kw_only=True)  # what ``config.json`` holds
    _head: str | None = field(default=None, kw_only=True)
    _origin: tuple[nn.Module | None, Domain, Transform] = field(kw_only=True)  # model that was given, images, transform

    def __repr__(self) -> str:
        kept = f"\nkept in {self.config.log}" * (self.config.log is not None)
        return f"{self.config.method}, {self.config.epochs} epochs\n{result_summary(self.summary)}{kept}"

    def certify(self, labels: ArrayLike | None = None, **settings: Any) -> Session:
        """Compare this model with its source model by labels of a few images.

        Args:
            labels: as for :func:`tllib_ancon.certify`
            **settings: of :func:`tllib_ancon.certify`, or for a run directory of
                :class:`~tllib_ancon.config.certify.CertifyConfig`. The directory then stores answers and certificate

        Returns: a session, as :func:`tllib_ancon.certify` does
        """
        from tllib_ancon.certificate.run import ModelPair, certify, known  # which few who adapt need

        source, images, transform = self._origin
        unseen = certifying(self._recorded, len(images))
        if labels is not None and unseen is not None:
            labels = np.asarray(on_cpu(labels))[unseen]
        if self.config.log is None:
            images = images if unseen is None else images.subset(unseen)
            if source is None:
                source = find(self.config).load(self.config).to(devices.device())
            views = 1 if self.config.no_hflip else self.config.views
            more = {
                "head": self._head,
                "classes": images.classes,
                "evaluation_transform": transform,
                "views": views,
                **settings,
            }
            return certify(source, self.model, images, labels=labels, **more)
        config = CertifyConfig(run=self.config.log, **{"quiet": True, **settings})
        with ModelPair(config, source and self.model, images, transform) as pair:
            session = pair.session()
            session.answer_all(known(labels, session.comparison))
            pair.conclude(session)
        return session

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model as its own library does, by ``save_pretrained`` of transformers or PyTorchModelHubMixin or by
        timm, with a model card: the run's ``README.md``, or one made of the numbers here."""
        file = None if self.config.log is None else Path(self.config.log, CARD)
        card = card_of(self._recorded, self.summary, None) if file is None else file.read_bytes().decode()
        save(self.model, card, Path(folder))

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, token: str | None = None, endpoint: str | None = None
    ) -> str:
        """Upload what :meth:`save_pretrained` writes to a repository of Hugging Face's hub, which is made where there
        is none; returns the address of the commit. ``token`` and ``endpoint`` are by default those of huggingface_hub.
        """
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            hub = huggingface_hub.HfApi(endpoint, token)
            repository = hub.create_repo(repo_id, private=private, exist_ok=True).repo_id
            message = f"Adapted by tllib-ancon, {self.config.method}"
            return str(hub.upload_folder(repo_id=repository, folder_path=folder, commit_message=message))


@recording_gradients()
def adapt(
    model: nn.Module | str | Path | AdaptConfig | None = None,
    images: Any = None,
    *,
    labels: Sequence[int] | bool | None = None,
    answers: ArrayLike | str | Path | None = None,
    head: str | None = None,
    train_transform: Transform | None = None,
    evaluation_transform: Transform | None = None,
    augment: Callable[[Tensor], Tensor] | None = None,
    config: AdaptConfig | None = None,
    **settings: Any,
) -> AdaptationResult:
    """Adapt a model to the images of another domain, without labels.

    Args:
        model: any module from images (B, C, H, W) to logits (B, K). A copy is adapted; the model is unchanged. Or a
            checkpoint or run directory, or all settings at once, as ``config``. Default: what ``checkpoint`` in the
            settings names. Weights of another type than float32 are adapted in float32, and come back in their own.
            Logits may be a tensor or part of an output object, a dict or a tuple. Probabilities are converted to
            logits. Image models of transformers are called with ``pixel_values``
        images: the N target images. A folder, a list of paths, an array (N, H, W, 3), a
            :class:`~tllib_ancon.data.domain.Domain`, a Hugging Face dataset, or a map-style dataset of torch. Arrays
            hold bytes or numbers from 0 to 1. Other arrays and tensors (N, ...) of floats, such as features (N, D), are
            taken unchanged. So is a mapping of arrays, whose rows the model gets by name. Items of a dataset are
            tensors, PIL images, or tuples or dicts with an image first or as ``image`` or ``img``. Default: the domain
            that ``root``, ``data`` and ``target`` in the settings name
        labels: (N,) true classes in [0, K), scored for the record in ``metrics``; they reach neither training nor
            selection. Labels in the dataset's items are dropped. True takes each subfolder of a folder as a class,
            False none. Default: the subfolders of a folder, if they have the names of the model's classes
        answers: (N,) classes of some images, -1 if unknown, or a CSV file of ``path,class``. The fraction ``teach`` of
            the images, drawn by the seed, trains the model with them, beside the method's loss. The others do not:
            their labels are left to certify the model
        head: dotted name of the model's head; of several heads whose mean are the logits, their names with commas.
            Default: the layer that returns the logits. It is needed if the model returns several tensors that could be
            logits
        train_transform, evaluation_transform: item -> tensor (C, H, W). uint8 tensors reach them as PIL images.
            Default: for image files those of the model's timm, transformers, open_clip or torchvision metadata;
            tensors of other types are taken as they come. An image processor of transformers as
            ``evaluation_transform`` alone gives its settings to both
        augment: batch tensor -> batch tensor, applied to the training batches on the device: noise or cropping of
            series. Of a mapping it gets the arrays by name. Default: none; files and pixels have their transform
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

        >>> result = tllib_ancon.adapt(model, "photos/", method="ancon-auto", epochs=10)
        >>> predictions = tllib_ancon.predict(result.model, "photos/")
    """
    if isinstance(model, AdaptConfig) and config is None:
        model, config = None, model
    if config is not None and settings:
        raise UserError(f"give `config` or single settings, not both; got `{next(iter(settings))}` besides")
    given = AdaptConfig(**settings) if config is None else config
    paths = {"checkpoint": model, "answers": answers, "root": images if given.root is None else None}
    given = given.replace(**{name: str(path) for name, path in paths.items() if isinstance(path, str | Path)})
    devices.join()
    for name in ("save_predictions", "track"):
        if given.log is None and getattr(given, name):
            raise UserError(f"`{name}` needs a run directory; pass `log`")
    passed = given_transforms(train_transform, evaluation_transform)
    run = open_run(given.log)
    with devices.using_processor(given.threads), ExitStack() as hooks:
        start = find(given, None if isinstance(model, str | Path) else model)
        run.refuse_own_checkpoint(start.checkpoint)
        target = inputs.images_of(given, images, labels, start.classes)
        inputs.refuse_without_effect(given, target, passed)
        devices.make_reproducible(given.seed, given.deterministic)
        known = known_domains(given.root, given.data) if start.checkpoint and given.root and given.data else ()
        for code in given.source:  # it is only written down, and names a domain all the same
            if known and code not in known:
                raise unknown_name(f"source domain of {given.data}:", code, known)
        network = start.load(given)
        if not start.checkpoint:
            hooks.enter_context(inputs.unpacking(network, target))
        before = {} if given.overwrite else run.recorded()
        config = resolve(given, start, network, target, passed, before)
        target, transforms = inputs.prepared(config, network, target, passed)
        probe = None
        if start.is_whole:
            probe = probe_of(target, transforms.evaluation)
        try:
            classifier = as_classifier(network, head, probe)
        except OtherOutput as error:
            possible = ("adabn",) if isinstance(error, MultiLabelOutput) else ("adabn", "tent")
            if start.checkpoint or given.method not in possible or given.log is not None:
                raise
            return _of_another_output(given, config, start.given, target, transforms, augment)
        if transforms.second_view is mirror and given.no_hflip is None and "no_hflip" not in before:
            config, transforms = without_mirrors(config, classifier, target, transforms, passed)
        transforms = replace(transforms, augment=augment and _augmenting(augment, target))
        classifier.preprocessing = transforms.preprocessing
        target = in_the_models_order(target, network, classifier.num_classes, start, Progress(config.quiet).line)
        recorded: dict[str, Any] = {"inputs": record_of(target)}
        if not start.checkpoint:
            weights = sha256_of_tensors(network.state_dict())
            recorded["inputs"] |= {"model": type(network).__qualname__, "weights_sha256": weights}
        elif Path(str(config.checkpoint)).is_file():
            recorded["inputs"]["checkpoint_sha256"] = sha256(Path(str(config.checkpoint)))
        if "taught" in start.recorded:
            recorded["taught"] = start.recorded["taught"]
        if given.log is not None and probe is not None:
            taken = None if isinstance(passed, Transforms) else transforms.preprocessing
            recorded["network"] = network_record(classifier, probe, taken)
            if isinstance(target.images, Mapped):
                recorded["network"]["layout"] = asdict(target.images.layout)
        answers, taught = config.answers if answers is None else answers, None
        if config.teach is not None or answers is not None:
            taught = taught_labels(config, target, answers, recorded)
        progress = Progress(config.quiet, config.verbose)
        note_on_labels(target, progress)
        for note in classifier.reader.notes if isinstance(classifier, NetworkClassifier) else ():
            progress.line(note)
        config = _with_parameters_to_train(config, given, classifier, progress)
        adaptation = Adaptation(classifier, target, config, run, transforms, progress, taught, start.statistics)
        if probe is not None and adaptation.method.trains:
            require_gradient(classifier, probe, config.adapted)
        if not adaptation.method.trains:
            refuse_settings_of_training(given)
            config = config.replace(optimizer=None, lr=None, fused=None)  # the defaults of what it does not read
        settings = {"command": "adapt", **config.to_dict(), **recorded}
        if config.track is not None and devices.is_main():
            progress.tracker = tracker(config.track, Path(str(config.log)), settings)
        try:
            summary = adaptation.make(settings, config.overwrite)
        except NotFinite as error:
            source_model = partial(_source_model, given, start, target, head, probe)
            raise explained(error, source_model, target, transforms.evaluation, config.batch_size or 1) from None
        adapted = adaptation.adapted()
        if isinstance(run, RunDirectory):
            write_card(run, summary)
    given_network = None if start.checkpoint else start.given
    if given_network is not None:
        _restore_tensors(adapted, given_network)
        adapted = wrapped_again(adapted, given_network)
    origin = (given_network, target, transforms.evaluation)
    return AdaptationResult(
        adapted,
        adaptation.metrics,
        summary["selected_epoch"],
        summary,
        config,
        _recorded=settings,
        _head=head,
        _origin=origin,
    )


def _with_parameters_to_train(
    config: AdaptConfig, given: AdaptConfig, classifier: Classifier, progress: Progress
) -> AdaptConfig:
    """The settings, with ``adapted=all`` by default for a model that is its head alone."""
    if given.adapted is not None or config.adapted != "all-but-head" or classifier.head is None:
        return config
    in_head = {*classifier.head.parameters()}
    if any(parameter not in in_head for parameter in classifier.parameters()):
        return config
    progress.line("the head has all parameters of the model; it learns (`adapted=all`)")
    return config.replace(adapted="all")


def _source_model(
    given: AdaptConfig, start: TrainedModel, target: Domain, head: str | None, probe: Tensor | None
) -> nn.Module:
    """Another copy of the source model, as the adaptation began with it."""
    network = start.load(given)
    if not start.checkpoint:
        inputs.unpacking(network, target)
    return as_classifier(network, head, probe)


def _restore_tensors(adapted: nn.Module, given: nn.Module) -> None:
    """Weights come back in the caller's types and on the caller's devices, and what was frozen is frozen."""
    tensors, like = (chain(one.parameters(), one.buffers()) for one in (adapted, given))
    for tensor, given_tensor in zip(tensors, like, strict=True):
        tensor.data = tensor.data.to(given_tensor.device, given_tensor.dtype)
        tensor.requires_grad_(given_tensor.requires_grad)


def _augmenting(augment: Callable[[Any], Any], target: Domain) -> Callable[[Tensor], Tensor]:
    """The augmentation of a batch; that of several arrays gets them by their names."""
    if not isinstance(target.images, Mapped):
        return augment
    layout = target.images.layout
    return lambda batch: layout.pack(augment(layout.unpack(batch)))


def _of_another_output(
    given: AdaptConfig,
    config: AdaptConfig,
    network: Any,
    target: Domain,
    transforms: Transforms,
    augment: Callable[[Tensor], Tensor] | None,
) -> AdaptationResult:
    """Adapt a model without logits (B, K) by ``adabn`` or, of logits (B, K, H, W), by ``tent``; nothing is scored."""
    if config.method == "adabn":
        refuse_settings_of_training(given)
    chosen = {name: value for name in ("optimizer", "lr") if (value := getattr(given, name)) is not None}
    stream = online(copy_of(network).float(), method=config.method, **chosen).to(devices.device())  # type: ignore[arg-type]
    images = UnlabelledImages(target, transforms.train, config.seed)
    assert config.batch_size is not None
    loader = training_loader(images, min(config.batch_size, len(target)), config.workers)
    with inputs.unpacking(stream.model, target):
        for _ in range(config.epochs if config.method == "tent" else 0):
            for _, batch in loader:
                stream(batch if augment is None else augment(batch))
            loader.sampler.epoch += 1  # type: ignore[union-attr]
        if any(isinstance(layer, BATCH_NORMS) for layer in stream.model.modules()):
            with estimated_statistics(stream.model), torch.no_grad():
                for _, batch in loader:
                    stream.model(batch)
    adapted = stream.model.eval().to(next(network.parameters()).device)
    _restore_tensors(adapted, network)
    adapted = wrapped_again(adapted, network)
    metrics = [{"epoch": 0}, {"epoch": config.epochs}]
    summary = {"method": config.method, "criterion": "last", "held_out": 0, "better_than_start": None}
    summary |= {"start": metrics[0], "selected": metrics[1], "last": metrics[1]}
    origin = (network, target, transforms.evaluation)
    return AdaptationResult(adapted, metrics, 1, summary, config, _recorded={}, _origin=origin)

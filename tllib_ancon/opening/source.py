"""A trained model that a stage starts from: where it lies, the run that trained it, and its network."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.config.settings import Settings
from tllib_ancon.data.batches import form_of, zeros_of
from tllib_ancon.data.layouts.arrays import Arrays, open_arrays
from tllib_ancon.data.layouts.hugging_face import require_datasets
from tllib_ancon.data.lists import read_class_names
from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.checkpoints import load_into, load_state_dict, without_prefix
from tllib_ancon.models.classifier import Classifier, as_classifier
from tllib_ancon.models.copies import copy_of
from tllib_ancon.models.foundation import load_named, require_library_of
from tllib_ancon.models.loading import IMAGENET, load
from tllib_ancon.models.networks import parse_options
from tllib_ancon.models.output import Output, OutputReader
from tllib_ancon.models.preprocessing import recorded_preprocessing
from tllib_ancon.models.recipes import OWN, build
from tllib_ancon.models.requirements import require_network
from tllib_ancon.opening.classes import ClassMap
from tllib_ancon.opening.defaults import USUAL_IMAGES, USUAL_NETWORK, Facts, resolve
from tllib_ancon.runs.directory import BEST, CHECKPOINTS, CONFIG, LATEST, RunDirectory
from tllib_ancon.runtime.errors import BadModel, BadSetting, UserError, named, network_itself, one_line
from tllib_ancon.runtime.importing import function_named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.types import Record, Show

Model = nn.Module | str | Path
"""What a caller passes as a model: a network, a checkpoint, a run directory or a name of the hub."""


@dataclass(frozen=True)
class Source:
    """A trained model, and the run that trained it, where it lies in a run directory.

    Attributes:
        checkpoint: the file, ``imagenet`` or the name of a library's model; empty for the caller's own module
        recorded_settings: ``config.json`` of that run
        module: network that takes the checkpoint's weights if no record builds it, or the caller's own module
        names: names of the classes that the user gives, in the order of the labels
        output: what the user passes as ``output``
        notes: what was decided when it was found
    """

    checkpoint: str = ""
    run: Path | None = None
    recorded_settings: Record = field(default_factory=dict)
    module: nn.Module | None = None
    names: list[str] | None = None
    output: Output | None = None
    notes: tuple[Note, ...] = ()

    @property
    def reader(self) -> OutputReader:
        """What gives the logits in the network's output: the user's, else that of the run."""
        recorded = self.network_record.get("output")
        if self.output is None and isinstance(recorded, dict):
            raise BadModel(
                f"the model of {self.run} was adapted with a function of its output, {recorded['function']}",
                f"pass it again as {named('output')}, in Python",
                setting="output",
            )
        if self.output is None:
            return OutputReader.of(recorded)
        if not self.is_whole:
            raise BadSetting(
                f"{named('output')} has no effect on {self.checkpoint}, whose network returns logits",
                "leave it out",
                setting="output",
            )
        return OutputReader.of(self.output)

    @property
    def num_classes(self) -> int:
        """K where the user or a run tells it, else 0."""
        return len(self.classes or ())

    @property
    def recorded_classes(self) -> list[str] | None:
        """Names of the classes in the record of its run."""
        names: list[str] | None = self.recorded_settings.get("inputs", {}).get("classes")
        return names

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes that the user or the run gives."""
        return self.names or self.recorded_classes

    @property
    def recorded_folders(self) -> dict[str, int]:
        """Class folder -> label of the images of its run."""
        folders: dict[str, int] = self.recorded_settings.get("inputs", {}).get("class_folders", {})
        return folders

    def classes_of(self, network: nn.Module, num_classes: int) -> ClassMap:
        """The K classes of its network."""
        return ClassMap.of(network, num_classes, self.names, self.recorded_classes, self.checkpoint)

    @property
    def lacks_its_best_model(self) -> bool:
        """Whether it is the last model of a run that also stores a best one, as all but CDAN and MDD do."""
        is_last = Path(self.checkpoint).name == LATEST
        selects = self.recorded_settings.get("command") != "pretrain" or self.recorded_settings["method"] == "erm"
        return is_last and selects

    @property
    def network_record(self) -> Record:
        """The :func:`~tllib_ancon.training.run_record.network_record` of a run of a whole network; else empty."""
        recorded: Record = self.recorded_settings.get("network") or {}
        return recorded

    @property
    def callers_module(self) -> nn.Module | None:
        """The module that the caller adapts; None for a checkpoint."""
        return None if self.checkpoint else self.module

    @property
    def is_whole(self) -> bool:
        """Whether its network is one that was given as an object, or that a record builds."""
        return self.module is not None or bool(self.network_record)

    def load(self, config: AdaptConfig | PredictConfig, notes: list[Note] | None = None) -> nn.Module:
        """The network with its weights: a copy of the caller's module, else a classifier. What is decided is appended
        to the notes."""
        decided: list[Note] = [] if notes is None else notes

        def show(text: str) -> None:
            decided.append(Note("weights", text))

        if not self.is_whole:
            return self._rebuilt(config, show)
        if self.module is None:
            network = build(self.network_record)
        else:
            network = copy_of(self.module).float()
        if Path(self.checkpoint).is_file():
            state = without_prefix(load_state_dict(self.checkpoint, show), network, show)
            advice = "give the network that it was trained with"
            load_into(network, state, f"checkpoint {self.checkpoint}", advice=advice)
        if not self.network_record:
            return network
        model = as_classifier(network, self.network_record.get("head"), self._probe(config), reader=self.reader)
        if "preprocessing" in self.network_record:
            model.preprocessing = recorded_preprocessing(self.network_record["preprocessing"])
        return model

    def _probe(self, config: AdaptConfig | PredictConfig) -> Tensor | None:
        """Two inputs of zeros of the recorded form; None where it is unknown."""
        form = self.network_record.get("images")
        if form is None and config.data == Arrays.name:
            rows: Any = open_arrays(str(config.root))
            form = form_of(rows.image(0)[None])
        return None if form is None else zeros_of(form, 2)

    def _rebuilt(self, config: AdaptConfig | PredictConfig, show: Show) -> Classifier:
        settings = dict(resolve(config, Facts(self)).settings)
        model = load(
            self.checkpoint,
            settings["arch"],
            len(self.recorded_classes or ()) or None,
            arch_options=parse_options(settings["arch_option"]),
            pool=not settings["no_pool"],
            scratch=config.scratch,
            show=show,
        )
        if self.recorded_settings.get("bottleneck_dropout"):
            model.drop_features(self.recorded_settings["bottleneck_dropout"])
        self._show_what_is_assumed(config, model.preprocessing, show)
        return model

    def _show_what_is_assumed(
        self, config: AdaptConfig | PredictConfig, of_the_network: Preprocessing | None, show: Show
    ) -> None:
        if self.run is not None or self.checkpoint == IMAGENET:
            return
        side = "resize_size" if config.val_resizing == "res." else "image_size"
        usual = {"arch": USUAL_NETWORK["arch"], side: USUAL_IMAGES[side]}
        if side == "image_size" and of_the_network is not None and of_the_network.image_size:
            usual["image_size"] = of_the_network.image_size
        assumed = [f"{name} {value}" for name, value in usual.items() if getattr(config, name) is None]
        if assumed:
            show(f"{self.checkpoint} lies in no run directory; assumed: {', '.join(assumed)}")


def require_extras(config: AdaptConfig | PredictConfig | PretrainConfig) -> None:
    """Raise an error where settings need packages of an extra that are missing, before anything is read or written."""
    require_library_of(str(config.arch))
    require_datasets(str(config.data))


def open_source(config: AdaptConfig | PredictConfig, model: Any = None, output: Output | None = None) -> Source:
    """Find the model that settings name, or take the caller's network, which gets the weights of a checkpoint.

    Args:
        config: settings of the user; they have the path or the settings that a caller passes as the model
        model: what the caller passes
        output: what the caller passes. Default: that of the settings
    """
    source = _found_source(config, model)
    return replace(source, output=config.output if output is None else output)


def _found_source(config: AdaptConfig | PredictConfig, model: Any) -> Source:
    network = None if isinstance(model, str | Path | Settings) else model
    require_extras(config)
    names = _class_names(config.class_names)
    if network is not None and (config.checkpoint is None or isinstance(config, AdaptConfig)):
        _require_no_other_model(config)
        return Source(module=require_network(network, learns=isinstance(config, AdaptConfig)), names=names)
    if config.checkpoint is not None:
        with_weights = config.model if network is None else network
        opened = open_checkpoint(config.checkpoint, with_weights)
        if Path(config.checkpoint).is_dir() and opened.lacks_its_best_model:
            text = f"{config.checkpoint} holds no {BEST}; the model is that of {LATEST}, the last epoch"
            opened = replace(opened, notes=(Note("last-epoch", text),))
        return replace(opened, names=names)
    arch = str(config.arch)
    if Path(arch).is_dir():
        raise BadSetting(
            f"{named('arch', arch)} is a folder",
            f"pass {named('arch', f'hf:{arch}')} for a saved model of transformers",
        )
    if ":" not in arch:
        raise UserError(
            f"no model to start from: pass {named('checkpoint')}, or an {named('arch')} that begins with hf: or "
            f"open_clip:"
        )
    network, names = load_named(arch, names, config.allow_download)
    return Source(arch, module=network, names=names)


def _class_names(setting: str | tuple[str, ...] | None) -> list[str] | None:
    """The names of the classes that a user gives, or that the file with this name holds."""
    if setting is None:
        return None
    if len(setting) == 1 and not isinstance(setting, str):
        return _class_names(setting[0])
    if isinstance(setting, str) and Path(setting).is_file():
        return read_class_names(Path(setting))
    if isinstance(setting, str):
        names = [name.strip() for name in setting.split(",")]
        if len(names) == 1 or "/" in setting or "" in names:
            raise BadSetting(
                f"{named('class_names', setting)} is not a file",
                "give the names in the order of the labels with commas between "
                "them, such as cat,dog, or a text file with a name on each line",
                setting="class_names",
            )
    else:
        names = [*setting]
    if len({*names}) < len(names):
        raise BadSetting(
            f"{named('class_names')} has a name twice", "give each class a name of its own", setting="class_names"
        )
    return names


def _require_no_other_model(config: AdaptConfig | PredictConfig) -> None:
    for name in ("checkpoint", "model"):
        if getattr(config, name, None) is not None:
            raise UserError(f"give a model or {named(name)}, not both")


def open_checkpoint(checkpoint: str, model: str | nn.Module | None = None, advice: str = "") -> Source:
    """The trained model of a checkpoint or a run directory; ``model`` is its network, or names a function. ``advice``
    is what a user should do where a network was given in Python."""
    if checkpoint == IMAGENET:
        return Source(checkpoint)
    path: Any = Path(checkpoint)
    if not path.exists():
        raise UserError(
            f"checkpoint {checkpoint} is not a file",
            f"give a checkpoint or a run directory, or as {named('arch')} the name of a "
            "model that begins with hf: or open_clip:",
        )
    if path.is_dir():
        stored = [*(path / CHECKPOINTS / name for name in (BEST, LATEST)), path / BEST, path / LATEST]
        path = next((file for file in stored if file.is_file()), None)
        if path is None:
            raise UserError(
                f"{checkpoint} holds no checkpoint",
                "give a checkpoint or a run directory, or pass a folder of "
                f"transformers as {named('arch', f'hf:{checkpoint}')}, in Python the model itself",
            )
    run = path.resolve().parent.parent
    source = Source(str(path), module=imported(model) if isinstance(model, str) else model)
    if (run / CONFIG).is_file():
        source = replace(source, run=run, recorded_settings=RunDirectory(run).config())
    if source.module is None and source.network_record.get("library") == OWN:
        raise UserError(
            f"{path} holds the weights of a network that was given in Python, {source.network_record['name']}",
            advice or f"pass {network_itself()}",
        )
    return source


def imported(function: str) -> nn.Module:
    """The network that ``module:function`` returns."""
    make_network = function_named("model", function)
    try:
        return require_network(make_network())
    except Exception as error:  # any error can come out of a user's own module
        raise BadSetting(
            f"{named('model', function)} gave no network ({one_line(error)})", "repair the function", setting="model"
        ) from error

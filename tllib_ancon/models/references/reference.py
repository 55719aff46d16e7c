"""What a stage starts from: a reference to a trained model. Each kind is a file of this folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from tllib_ancon.models.checkpoints import sha256_of_tensors
from tllib_ancon.models.class_names import class_names_of
from tllib_ancon.models.copies import copy_of, unwrapped
from tllib_ancon.models.output import Output, OutputReader
from tllib_ancon.runtime.errors import BadModel, BadSetting, named
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.text import counted
from tllib_ancon.runtime.types import Options, Record

Model = nn.Module | str | Path
"""What a caller passes as a model: a network, a checkpoint, a run directory or a name of the hub."""


@dataclass(frozen=True)
class ModelRef:
    """A trained model by the way in which it is passed: the base class as a module, or not at all for a first stage.

    Attributes:
        checkpoint: the file, ``imagenet`` or the name of a library's model; empty for the caller's own module
        module: network that takes the checkpoint's weights if nothing builds it, or the caller's own module
        names: names of the classes that the user gives, in the order of the labels
        output: what the user passes as ``output``
        run: directory of the run that trained it, where there is one
        recorded_settings: ``config.json`` of that run
        notes: what was decided when it was found
    """

    checkpoint: str = ""
    module: nn.Module | None = None
    names: list[str] | None = None
    output: Output | None = None
    run: Path | None = None
    recorded_settings: Record = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    # What a kind defines.

    def network(self, settings: Options) -> nn.Module:
        """The network with its weights, which the caller may change. Default: a copy of ``module``.

        Args:
            settings: ``arch``, ``arch_option``, ``no_pool`` and ``scratch``, of a network that settings build
        """
        assert self.module is not None
        return copy_of(self.module).float()

    def class_names(self, network: nn.Module, num_classes: int) -> list[str] | None:
        """Names of the K classes of its network: of the user, else of the run, else of the model; None if unknown."""
        if self.names is not None and len(self.names) != num_classes:
            raise BadSetting(
                f"{named('class_names')} has {counted(len(self.names), 'name')}, {self.names[0]!r} first, and the "
                f"model has {num_classes} classes",
                "name each class, in the order of the model's outputs",
                setting="class_names",
            )
        if self.num_classes == num_classes:
            return self.classes
        return class_names_of(network, num_classes)

    def digest(self) -> str:
        """What differs between two models of this kind. Default: the SHA-256 of the module's tensors."""
        assert self.module is not None
        return sha256_of_tensors(unwrapped(self.module).state_dict())

    def describe(self) -> str:
        """The model in a text for the user."""
        if self.module is None or self.checkpoint:
            return self.checkpoint
        return type(unwrapped(self.module)).__qualname__

    @property
    def is_whole(self) -> bool:
        """Whether its network is an object or recorded as a whole, so that no setting builds it."""
        return self.module is not None or bool(self.network_record)

    @property
    def callers_module(self) -> nn.Module | None:
        """The module that the caller passes to adapt or to predict with; None for weights of a file or a library."""
        return None if self.checkpoint else self.module

    # What follows from it.

    @property
    def network_record(self) -> Record:
        """The record of a whole network in its run: recipe, head, output, preprocessing; else empty."""
        return self.recorded_settings.get("network") or {}

    @property
    def reader(self) -> OutputReader:
        """What gives the logits in the network's output: the user's, else that of the run."""
        recorded = self.network_record.get("output")
        if self.output is not None and not self.is_whole:
            raise BadSetting(
                f"{named('output')} has no effect on {self.describe()}, whose network returns logits",
                "leave it out",
                setting="output",
            )
        if self.output is None and isinstance(recorded, dict):
            raise BadModel(
                f"the model of {self.run} was adapted with a function of its output, {recorded['function']}",
                f"pass it again as {named('output')}, in Python",
                setting="output",
            )
        return OutputReader.of(recorded if self.output is None else self.output)

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes that the user or the run gives."""
        return self.names or self.recorded_inputs.get("classes")

    @property
    def num_classes(self) -> int:
        """K where the user or the run tells it, else 0."""
        return len(self.classes or ())

    @property
    def recorded_folders(self) -> dict[str, int]:
        """Class folder -> label of the images of its run."""
        folders: dict[str, int] = self.recorded_inputs.get("class_folders", {})
        return folders

    @property
    def recorded_inputs(self) -> Record:
        """The record of the images of its run, and of their classes."""
        inputs: Record = self.recorded_settings.get("inputs", {})
        return inputs

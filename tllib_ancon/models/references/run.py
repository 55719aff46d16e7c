"""The model of a run directory, which records how its network is built."""

from dataclasses import replace
from pathlib import Path

from torch import nn

from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.checkpoints import load_state_dict
from tllib_ancon.models.preprocessing import recorded_preprocessing
from tllib_ancon.models.recipes import OWN, build
from tllib_ancon.models.references.reference import ModelRef, Request
from tllib_ancon.models.references.weights_file import WeightsFile
from tllib_ancon.runs.directory import BEST, CONFIG, LATEST, RunDirectory
from tllib_ancon.runtime.errors import BadModel, network_itself
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.types import Options, Show, silently


class Run(WeightsFile):
    """A checkpoint of a run. Where its network was passed in Python, the user passes it again."""

    @classmethod
    def recognise(cls, request: Request) -> ModelRef | None:
        weights = super().recognise(request)
        if weights is None:
            return None
        directory = Path(weights.checkpoint).resolve().parent.parent
        if not (directory / CONFIG).is_file():
            return None
        run = cls(weights.checkpoint, weights.module, weights.names, run=directory)
        run = replace(run, recorded_settings=RunDirectory(directory).config())
        if run.module is None and run.network_record.get("library") == OWN:
            raise BadModel(
                f"{run.checkpoint} holds the weights of a network that was given in Python, "
                f"{run.network_record['name']}",
                f"pass {network_itself()}",
            )
        if Path(str(request.checkpoint)).is_dir() and run._lacks_its_best_model:
            text = f"{request.checkpoint} holds no {BEST}; the model is that of {LATEST}, the last epoch"
            run = replace(run, notes=(Note("last-epoch", text),))
        return run

    def network(self, settings: Options, show: Show = silently) -> nn.Module:
        if self.module is None and self.network_record:
            network = self.with_weights(build(self.network_record), load_state_dict(self.checkpoint, show), show)
        else:
            network = super().network(settings, show)
        if "preprocessing" in self.network_record:
            recorded = recorded_preprocessing(self.network_record["preprocessing"])
            network.preprocessing = recorded or Preprocessing((), ())  # type: ignore[assignment]
        if self.recorded_settings.get("bottleneck_dropout"):
            network.drop_features(self.recorded_settings["bottleneck_dropout"])  # type: ignore[operator]
        return network

    def class_names(self, network: nn.Module, num_classes: int) -> list[str] | None:
        recorded = self.classes
        if recorded is not None and len(recorded) == num_classes:
            return recorded
        return super().class_names(network, num_classes)

    @property
    def is_whole(self) -> bool:
        return self.module is not None or bool(self.network_record)

    @property
    def _lacks_its_best_model(self) -> bool:
        """Whether it is the last model of a run that also stores a best one, as all but CDAN and MDD do."""
        is_last = Path(self.checkpoint).name == LATEST
        selects = self.recorded_settings.get("command") != "pretrain" or self.recorded_settings["method"] == "erm"
        return is_last and selects

"""The model of a run directory, which records how its network is built."""

from dataclasses import replace
from pathlib import Path

from torch import nn

from tllib_ancon.data.transforms import Preprocessing
from tllib_ancon.models.checkpoints import load_state_dict
from tllib_ancon.models.preprocessing import recorded_preprocessing
from tllib_ancon.models.recipes import OWN, build
from tllib_ancon.models.references.reference import ModelRef
from tllib_ancon.models.references.weights_file import WeightsFile
from tllib_ancon.runs.directory import BEST, CHECKPOINTS, CONFIG, LATEST, RunDirectory
from tllib_ancon.runtime.errors import BadFile, BadModel, named, network_itself
from tllib_ancon.runtime.notes import Note
from tllib_ancon.runtime.types import Options


class Run(WeightsFile):
    """A checkpoint of a run. Where its network was passed in Python, the user passes it again."""

    def network(self, settings: Options) -> nn.Module:
        if self.module is None and self.network_record:
            network = self.with_weights(build(self.network_record), load_state_dict(self.checkpoint))
        else:
            network = super().network(settings)
        if "preprocessing" in self.network_record:
            recorded = recorded_preprocessing(self.network_record["preprocessing"])
            network.preprocessing = recorded or Preprocessing((), ())  # type: ignore[assignment]
        if self.recorded_settings.get("bottleneck_dropout"):
            network.drop_features(self.recorded_settings["bottleneck_dropout"])  # type: ignore[operator]
        return network


def run_or_file(checkpoint: str, module: nn.Module | None, names: list[str] | None) -> ModelRef:
    """The model of a run directory or of a file in it; any other file holds weights alone."""
    file = _file_of(checkpoint)
    directory = file.resolve().parent.parent
    if not (directory / CONFIG).is_file():
        return WeightsFile(str(file), module, names)
    recorded = RunDirectory(directory).config()
    run = Run(str(file), module, names, run=directory, recorded_settings=recorded)
    if module is None and run.network_record.get("library") == OWN:
        raise BadModel(
            f"{file} holds the weights of a network that was given in Python, {run.network_record['name']}",
            f"pass {network_itself()}",
        )
    selects = recorded.get("command") != "pretrain" or recorded["method"] == "erm"  # CDAN and MDD store the last model
    if Path(checkpoint).is_dir() and file.name == LATEST and selects:
        text = f"{checkpoint} holds no {BEST}; the model is that of {LATEST}, the last epoch"
        return replace(run, notes=(Note("last-epoch", text),))
    return run


def _file_of(checkpoint: str) -> Path:
    """The file of weights of a checkpoint; of a directory that of its best model, else of its last."""
    path = Path(checkpoint)
    folder = path / CHECKPOINTS
    for file in (path, folder / BEST, folder / LATEST, path / BEST, path / LATEST):
        if file.is_file():
            return file
    problem = "holds no checkpoint" if path.exists() else "is not a file"
    raise BadFile(
        f"checkpoint {checkpoint} {problem}",
        f"give a checkpoint or a run directory, or as {named('arch')} the name of a model that begins with hf: or "
        "open_clip:, such as hf:FOLDER",
    )

"""Which model predicts which images."""

from typing import Annotated

from pydantic import Field

from tllib_ancon.config.data import DataConfig
from tllib_ancon.config.images import ImageConfig
from tllib_ancon.config.model import ModelConfig, StartConfig
from tllib_ancon.config.run import MachineConfig
from tllib_ancon.config.settings import Flag

STANDARD_OUTPUT = "-"


class InferenceConfig(MachineConfig):
    """How images pass through a trained model."""

    FLAG = Flag(group="run")

    batch_size: Annotated[int, Flag("-b", metavar="B")] = Field(64, ge=1)
    """images in a step"""


class PredictConfig(InferenceConfig, StartConfig, ImageConfig, ModelConfig, DataConfig):
    """Which model predicts which images; of ``evaluate`` and ``predict``."""


class PredictionsConfig(PredictConfig):
    """Which model predicts which images, and where the predictions go."""

    FLAG = Flag(group="predictions", common=True)

    root: Annotated[str | None, Flag(metavar="IMAGES", group="images", common=True)] = None
    """an image, a folder of images, with its subfolders, an image list, or with --data and --target the folder of a
    dataset"""
    out: Annotated[str, Flag(metavar="FILE")] = "predictions.csv"
    """file to write, as .csv or .npz by its ending; - writes CSV to standard output"""
    probabilities: bool = False
    """write the probability of every class, too"""
    overwrite: bool = False
    """replace the file if it exists"""

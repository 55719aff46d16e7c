"""Which model is assessed on which images."""

from typing import Annotated

from pydantic import Field

from tllib_ancon.config.predict import PredictConfig
from tllib_ancon.config.run import JsonConfig
from tllib_ancon.config.settings import Flag
from tllib_ancon.config.types import File, Seed


class AssessConfig(JsonConfig, PredictConfig):
    """Which model is assessed on which images."""

    FLAG = Flag(group="labels", common=True)

    checkpoint: Annotated[str | None, Flag(metavar="MODEL_OR_RUN", group="model", common=True)] = None
    """the model: a checkpoint, or the run directory that holds it"""
    root: Annotated[str | None, Flag(group="images", common=True)] = None
    """folder of images or an image list, or with --data and --target the folder of a dataset"""
    questions: File = None
    """CSV file to write, with the images to label in their order"""
    answers: File = None
    """CSV file with path,class on each line, of the first images in that order; cannot tell counts as wrong"""
    delta: float = Field(0.05, gt=0, lt=1)
    """probability that the interval from labels ever misses"""
    seed: Seed = 0
    """seed of the order of the images"""

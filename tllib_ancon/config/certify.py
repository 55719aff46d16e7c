"""Which of a run's two models is compared by labels, and how."""

from typing import Annotated, Literal

from pydantic import Field

from tllib_ancon.config.model import NetworkConfig
from tllib_ancon.config.predict import InferenceConfig
from tllib_ancon.config.settings import Flag
from tllib_ancon.config.types import BelowOne, Probability, Seed


class CertifyConfig(InferenceConfig, NetworkConfig):
    """Which of a run's two models is better, by labels of a few images on which they disagree."""

    run: Annotated[str, Flag(group="run", common=True)]
    """run directory of an adaptation"""
    root: Annotated[str | None, Flag(group="run")] = None
    """folder of the dataset or of the images; by default the one that the run names"""
    checkpoint: Annotated[str | None, Flag(metavar="FILE", group="run")] = None
    """the source model; by default the one that the run names or keeps"""
    loader: Annotated[str | None, Flag(metavar="MODULE:FUNCTION", group="run")] = None
    """function that reads an image file, where the run was given one"""
    page: Annotated[bool, Flag(group="labels", common=True)] = False
    """ask for labels on a web page that only this machine can open"""
    port: Annotated[int, Flag(group="labels")] = Field(8765, ge=0, le=65_535)
    """port of the page; 0 chooses a free one"""
    answers: Annotated[str | None, Flag(metavar="FILE", group="labels", common=True)] = None
    """CSV file with path,class on each line, or an image list; in place of a class it may say another or cannot tell"""
    questions: Annotated[str | None, Flag(metavar="FILE", group="labels", common=True)] = None
    """CSV file to write, with the images to label in their order"""
    delta: Annotated[Probability, Flag(group="test", common=True)] = 0.05
    """largest probability of a false verdict"""
    side: Annotated[Literal["better", "both"], Flag(group="test", common=True)] = "better"
    """Which wrong verdicts are limited. better: a false "better" and a false "worse", each at delta. both: the two
    together, which takes 9 to 18 % more labels"""
    margin: Annotated[BelowOne, Flag(group="test", common=True)] = 0.0
    """difference of accuracy that does not matter, as a share of all images: 0.01 is one percentage point"""
    seed: Annotated[Seed, Flag(group="test")] = 0
    """seed of the order of the images"""

"""Which model is checked with which images."""

from typing import Annotated

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.run import JsonConfig
from tllib_ancon.config.settings import Flag


class CheckConfig(JsonConfig, AdaptConfig):
    """Which model is checked with which images, or without a model which dataset. The settings are those of ``adapt``,
    so that each shows its effect."""

    FLAG = Flag(group="options", common=True)

    no_decode: bool = False
    """Without a model: only look whether every file is there, which does not find damaged ones."""
    out: Annotated[str | None, Flag(metavar="DIR", group="output")] = None
    """Folder for images.png: eight images as the network gets them, with their predicted classes."""

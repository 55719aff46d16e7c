"""Which model is checked with which images."""

from typing import Annotated

from tllib_ancon.config.adapt import AdaptConfig
from tllib_ancon.config.run import JsonConfig
from tllib_ancon.config.settings import Flag


class CheckConfig(JsonConfig, AdaptConfig):
    """Which model is checked with which images. The settings are those of ``adapt``, so that each shows its effect."""

    FLAG = Flag(group="options", common=True)

    out: Annotated[str | None, Flag(metavar="DIR", group="output")] = None
    """Folder for images.png: eight images as the network gets them."""

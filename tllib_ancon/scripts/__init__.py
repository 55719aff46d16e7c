"""TLLib's scripts, unmodified: a user's own images in them."""

from typing import Any

from tllib_ancon.toolkit import compat

EXTENDED = (
    "tllib.vision.datasets.imagelist",
    "tllib.vision.datasets",
    "tllib.vision.datasets.partial",
    "tllib.vision.datasets.openset",
)
"""Modules of TLLib that :func:`enable` extends, in the order of their import."""


def enable() -> None:
    """Make ``import tllib`` work from now on, as :func:`tllib_ancon.toolkit.enable` does, and give
    ``tllib.vision.datasets`` the layouts of images of this package.
    """
    compat.enable(dict.fromkeys(EXTENDED, _extend))


def _extend(module: Any) -> None:
    from tllib_ancon.scripts.own_images import EXTENSIONS  # here: enabling imports nothing heavy

    EXTENSIONS[module.__name__](module)

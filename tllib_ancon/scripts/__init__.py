"""TLLib's scripts, unmodified: a user's own images in them."""

from tllib_ancon.scripts.own_images import EXTENSIONS
from tllib_ancon.toolkit import compat


def enable() -> None:
    """Make ``import tllib`` work from now on, as :func:`tllib_ancon.toolkit.enable` does, and give
    ``tllib.vision.datasets`` the layouts of images of this package.
    """
    compat.enable(EXTENSIONS)

"""Which images: the dataset, its domains and its classes."""

from typing import Annotated

from tllib_ancon.config.settings import Flag, Settings


class DataConfig(Settings):
    """Which images."""

    FLAG = Flag(group="domains")

    root: Annotated[str | None, Flag(common=True)] = None
    """folder of the dataset"""
    data: Annotated[str | None, Flag("-d", common=True)] = None
    """Layout of ROOT, or the name of a dataset."""
    source: Annotated[tuple[str, ...], Flag("-s", common=True)] = ()
    """names of the source domains"""
    target: Annotated[tuple[str, ...], Flag("-t", common=True)] = ()
    """names of the target domains"""
    skip_corrupt: bool = False
    """Decode every image before training and leave out unreadable images."""
    allow_download: Annotated[bool, Flag(decides=False)] = False
    """download hf:NAME or open_clip:NAME from the hub if it is not in the cache"""

"""The layouts of data: each module of this folder registers its own, and nothing else names it."""

from importlib import import_module
from pkgutil import iter_modules

from tllib_ancon.data.layout import LAYOUTS, Layout
from tllib_ancon.runtime.errors import unknown_name

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def layout_of(dataset: str) -> Layout:
    """The layout of a dataset.

    Raises:
        UserError: an unknown name
    """
    if dataset not in LAYOUTS:
        raise unknown_name("dataset", dataset, LAYOUTS)
    return LAYOUTS[dataset]

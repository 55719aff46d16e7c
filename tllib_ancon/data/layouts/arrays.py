"""Arrays: a file ``x.npy`` (N, ...) of features, series or pixels, with labels in a ``y.npy`` (N,) beside it."""

from pathlib import Path

import numpy as np

from tllib_ancon.data.folders import ROOT
from tllib_ancon.data.image_source import ImageSource, with_labels
from tllib_ancon.data.layout import Layout, Opening, layout
from tllib_ancon.data.readers import reader_of
from tllib_ancon.runtime.errors import reading


@layout
class Arrays(Layout):
    name = "Arrays"
    help = "ROOT is a file .npy of features, series or pixels"
    default_codes = (ROOT,)

    def open_domain(self, opening: Opening, code: str) -> ImageSource:
        return open_arrays(opening.root)

    def open(self, opening: Opening) -> ImageSource:
        return open_arrays(opening.root)


def open_arrays(file: str | Path) -> ImageSource:
    """The rows of a file, mapped from disk, with the labels beside it."""
    with reading(file, "an array", "save an array of float32 with numpy.save"):
        rows = np.lib.format.open_memmap(file, mode="r")
    source = ImageSource(Path(file).stem, reader_of(rows, str(file)))
    label_file = Path(file).with_name("y.npy")
    if not label_file.is_file():
        return source
    with reading(label_file, "labels"):
        labels = np.load(label_file, allow_pickle=False)
    return with_labels(source, labels)

"""Folders and images below a root, and the domains of the images in them."""

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

from tllib_ancon.data.image_source import ImageSource
from tllib_ancon.runtime.errors import BadImages, named, unknown_name

ROOT = "."
"""The domain that is the dataset's root itself."""

SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".gif", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", ".jp2")


class Tree:
    """Folders and images below a root, in torchvision's order, without hidden ones. Links are followed; one that leads
    outside is an error."""

    def __init__(self, root: str | os.PathLike[str]):
        if not os.path.isdir(root):
            raise BadImages(f"dataset root {root} is not a folder", f"give the folder that holds it as {named('root')}")
        self.root = Path(root)
        real_root = os.path.join(os.path.realpath(root), "")

        @lru_cache(10_000)
        def leads_inside(path: str) -> bool:
            return os.path.join(os.path.realpath(path), "").startswith(real_root)

        self._leads_inside = leads_inside

    def require(self, path: str | Path, shown: str = "") -> str:
        """The path, if it stays below the root, all links followed; errors name it as ``shown``."""
        file = str(path)
        is_in_folder = not os.path.islink(file) and self._leads_inside(os.path.dirname(file))
        if is_in_folder or self._leads_inside(file):
            return file
        raise BadImages(
            f"{shown or path} leads outside the dataset root",
            "give a folder that holds all images, or copy them into it",
        )

    def folders(self, folder: str | Path) -> list[str]:
        """Names of the folders in this one, sorted."""
        _, names, _ = next(_walk(folder))
        return names

    def images(self, folder: str | Path) -> list[str]:
        """Paths of the images in this folder, sorted."""
        place, _, files = next(_walk(folder))
        return self._images_among(place, files)

    def images_below(self, folder: str | Path) -> list[str]:
        """Paths of the images in and below this folder: folder by folder, sorted by their paths. A folder that several
        links lead to is read once."""
        real_paths = {os.path.realpath(folder)}
        images: dict[str, list[str]] = {}
        for place, names, files in _walk(folder):
            images[place] = self._images_among(place, files)
            subfolders = [os.path.realpath(self.require(os.path.join(place, name))) for name in names]
            names[:] = [name for name, path in zip(names, subfolders, strict=True) if path not in real_paths]
            real_paths.update(subfolders)
        return list(chain.from_iterable(images[place] for place in sorted(images)))

    def _images_among(self, folder: str, files: list[str]) -> list[str]:
        paths = [os.path.join(folder, name) for name in sorted(files) if not name.startswith(".")]
        return [self.require(path) for path in paths if path.lower().endswith(SUFFIXES)]

    def source(
        self, code: str, paths: Sequence[str], classes: Sequence[str] = (), labels: Sequence[int] | None = None
    ) -> ImageSource:
        """The images of a domain that is a folder."""
        if not paths:
            raise BadImages(
                f"{self.root / code}: no image here",
                f"give a folder with files of these suffixes: {' '.join(SUFFIXES)}",
            )
        name = self.root.resolve().name if code == ROOT else code
        return ImageSource.of_files(name, paths, classes, labels, str(self.root))

    def domain(self, code: str) -> Path:
        """The folder of a domain: the root or a folder in it."""
        folder = self.root / code
        if folder.is_dir():
            return Path(self.require(folder))
        raise unknown_name(f"domain of {self.root}:", code, [ROOT, *self.folders(self.root)])


def _walk(folder: str | Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each folder in and below this one, with the names of the folders in it, without hidden ones, and of its files."""
    for place, names, files in os.walk(folder, onerror=_unreadable, followlinks=True):
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield place, names, files


def _unreadable(error: OSError) -> None:
    raise error

"""Folders and images below a root, and the domains of the images in them."""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path

from tllib_ancon.data.domain import Domain
from tllib_ancon.runtime.errors import BadImages, UserError, named, unknown_name
from tllib_ancon.runtime.text import counted

ROOT = "."
"""The domain that is the dataset's root itself."""

SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".gif", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", ".jp2")


OF_THE_SYSTEM = ("$RECYCLE.BIN", "#recycle", "@eaDir", "__MACOSX", "lost+found", "System Volume Information")
"""Folders in which systems, storage servers and archives put files that are not of a dataset, such as previews."""

OF_A_RUN = ("config.json", "checkpoints")
"""What a run directory holds."""


class Tree:
    """Folders and images below a root, in torchvision's order, without hidden ones, run directories and those of
    :data:`OF_THE_SYSTEM`. Links are followed; one that leads outside is an error unless ``allow_outside``, and left out
    with ``skip``."""

    def __init__(self, root: str | os.PathLike[str], allow_outside: bool = False, skip: bool = False):
        if not os.path.isdir(root):
            advice = "give the folder that holds the dataset"
            if glob.has_magic(os.fspath(root)):
                advice = "in Python pass glob.glob(PATTERN, recursive=True), on the command line give the folder"
            raise BadImages(f"dataset root {root} is not a folder", advice)
        self.root = Path(root)
        self.allow_outside = allow_outside
        self.skip = skip
        self.skipped: dict[str, None] = {}  # why images are left out, each reason once
        self.ignored: set[str] = set()
        self.system_folders: set[str] = set()
        real_root = os.path.join(os.path.realpath(root), "")

        @lru_cache(10_000)
        def leads_inside(path: str) -> bool:
            return os.path.join(os.path.realpath(path), "").startswith(real_root)

        self._leads_inside = leads_inside

    def holds(self, path: str) -> bool:
        """Whether a path stays below the root, all links followed."""
        if self.allow_outside:
            return True
        if not os.path.islink(path) and self._leads_inside(os.path.dirname(path)):
            return True
        return self._leads_inside(path)

    def require(self, path: str | Path) -> str:
        if not self.holds(str(path)):
            raise BadImages(
                f"{path} leads outside the dataset root", f"pass {named('allow_outside_root', True)} to accept it"
            )
        return str(path)

    @property
    def ignored_files(self) -> str:
        """Which files beside the images and folders of a system were ignored, in words; empty for none."""
        parts = []
        if self.ignored:
            suffixes = sorted({os.path.splitext(path)[1].lower() or "no suffix" for path in self.ignored})
            parts.append(f"{counted(len(self.ignored), 'file')} ignored ({', '.join(suffixes)})")
        if self.system_folders:
            parts.append(f"left out: {', '.join(sorted(self.system_folders))}")
        return "; ".join(parts)

    def folders(self, folder: str | Path) -> list[str]:
        folders = [path for path, is_folder in _entries(folder) if is_folder]
        names = [os.path.basename(path) for path in folders if not _is_run_directory(path)]
        self.system_folders |= {*names} & {*OF_THE_SYSTEM}
        return [name for name in names if name not in OF_THE_SYSTEM]

    def images(self, folder: str | Path) -> list[str]:
        files = [path for path, is_folder in _entries(folder) if not is_folder]
        images = [path for path in files if path.lower().endswith(SUFFIXES)]
        self.ignored |= {*files} - {*images}
        return list(filter(self._accepts, images))

    def _accepts(self, path: str) -> bool:
        """Whether the tree holds a path and no link leads around; else an error or, with ``skip``, a reason."""
        try:
            if os.path.islink(path) and Path(path).parent.resolve().is_relative_to(os.path.realpath(path)):
                raise BadImages(f"{path} is a link to a folder that it lies in", "remove it")
            self.require(path)
        except UserError as error:
            if not self.skip:
                raise
            self.skipped[error.what] = None
            return False
        return True

    def images_below(self, folder: str | Path) -> Iterator[str]:
        """Paths of the images in and below this folder: folder by folder, sorted by their paths."""
        places = [self.require(folder)]
        for place in places:  # the list grows meanwhile
            places += filter(self._accepts, (os.path.join(place, name) for name in self.folders(place)))
        return chain.from_iterable(map(self.images, sorted(places)))

    def domain(self, code: str, names: Sequence[str] | None = None) -> Path:
        """The folder of a domain, of these names. Default: the root and the folders in it."""
        folder = self.root / code
        if folder.is_dir():
            return Path(self.require(folder))
        raise unknown_name(f"domain of {self.root}:", code, names or [ROOT, *self.folders(self.root)])


def _entries(folder: str | Path) -> list[tuple[str, bool]]:
    """Paths in a folder without hidden ones, sorted, and whether each is a folder or leads to one."""
    with os.scandir(folder) as entries:
        shown = [entry for entry in entries if not entry.name.startswith(".")]
        return sorted((entry.path, _is_folder(entry)) for entry in shown)


def _is_run_directory(folder: str) -> bool:
    """Whether it is the ``log`` of a run, whose figures are no images of a dataset."""
    return all(os.path.lexists(os.path.join(folder, name)) for name in OF_A_RUN)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    if entry.is_symlink():  # of links in a circle ``is_dir`` raises an error
        return os.path.isdir(entry.path)
    return entry.is_dir()


def domain_of_files(
    tree: Tree, codes: Sequence[str], paths: Sequence[str], classes: Sequence[str], labels: Sequence[int] | None = None
) -> Domain:
    """The domain of the images in folders, with what the tree left out."""
    if not paths:
        folders = ", ".join(str(tree.root / code) for code in codes)
        ignored = ""
        if tree.ignored_files:
            ignored = f"; {tree.ignored_files}"
        raise BadImages(
            f"{folders}: no image here{ignored}. Give a folder with files of these suffixes: {', '.join(SUFFIXES)}"
        )
    name = "+".join(tree.root.resolve().name if code == ROOT else code for code in codes)
    domain = Domain.of_files(name, paths, list(classes), labels, str(tree.root))
    return replace(domain, ignored=tree.ignored_files, skipped=[*tree.skipped])


def labelled_domain(
    tree: Tree, codes: Sequence[str], classes: Sequence[str], images: Iterable[tuple[int, Iterable[str]]]
) -> Domain:
    """The domain of images in class folders: the label of each folder and the paths in it."""
    paths: list[str] = []
    labels: list[int] = []
    for label, paths_of_class in images:
        number_before = len(paths)
        paths.extend(paths_of_class)
        labels.extend([label] * (len(paths) - number_before))
    return domain_of_files(tree, codes, paths, classes, labels)

"""ImageNet-C and folders of its layout: ``corruption/severity/class/*``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tllib_ancon.data.domain import Domain
from tllib_ancon.data.image_folder import pictures_in, subfolders
from tllib_ancon.data.paths import Confined, Paths
from tllib_ancon.errors import UserError, one_line, unknown_name

IMAGENET_C, CORRUPTED_IMAGES = "ImageNetC", "CorruptedImages"
LAYERED = (IMAGENET_C, CORRUPTED_IMAGES)
"""Datasets that :func:`open_corrupted` opens. ``CorruptedImages`` is any other set in ImageNet-C's layout."""


def open_corrupted(
    root: Path, dataset: str, codes: Sequence[str], subset: str | None = None, allow_outside: bool = False
) -> Domain:
    """Open folders of corrupted images.

    Args:
        root: holds a folder a corruption, with a folder a severity, with a folder a class
        dataset: ``ImageNetC``: the classes are ImageNet's 1000, in the order of their sorted WordNet ids, which is the
            order of ImageNet classifiers; ``CorruptedImages``: the sorted class folders
        codes: ``corruption/severity``, e.g. ``gaussian_noise/5``; several are joined
        subset: a list of the images to use, one ``class/name`` a line, the same for every corruption. Default: all
        allow_outside: accept folders and images that links lead to outside ``root``. Default: False

    Raises:
        UserError: a folder or an image that is missing or leads outside ``root`` (which), an unknown class, an
            incomplete ImageNet-C
    """
    inside = None if allow_outside else Confined(root)
    folders = [_folder(root, code, inside) for code in codes]
    found = {name for folder in folders for name in subfolders(folder)}
    classes = imagenet_classes() if dataset == IMAGENET_C else sorted(found)
    _check_classes(root, found, classes, incomplete_allowed=subset is not None)
    if subset is None:
        images = (pictures_in(folder / name, inside) for folder in folders for name in subfolders(folder))
    else:
        images = (_listed(folder, subset, inside) for folder in folders)
    paths = Paths(chain.from_iterable(images), root)
    if not paths:
        raise UserError(f"{', '.join(map(str, folders))}: no image here")
    labels = {name: label for label, name in enumerate(classes)}
    named = [labels[os.path.basename(os.path.dirname(path))] for path in paths]
    return Domain.of_files("+".join(codes), paths, classes, named)


def imagenet_classes() -> list[str]:
    """WordNet ids of ImageNet's 1000 classes, sorted; timm's list."""
    from timm.data.imagenet_info import ImageNetInfo

    info: Any = ImageNetInfo("imagenet-1k")
    return sorted(info.label_names())


def _folder(root: Path, code: str, inside: Confined | None) -> Path:
    folder = root / code
    if inside is not None and not inside(str(folder)):
        raise UserError(f"domain {code!r} leads outside the dataset root {root}; `allow_outside_root=True` accepts it")
    if not folder.is_dir():
        found = [path.relative_to(root).as_posix() for path in root.glob("*/[1-5]") if path.is_dir()]
        if not found:
            raise UserError(
                f"{root} does not hold {code}; the layout of corrupted images is corruption/severity/class/*"
            )
        raise unknown_name(f"domain of {root}:", code, found)
    return folder


def _check_classes(root: Path, found: set[str], classes: Sequence[str], incomplete_allowed: bool) -> None:
    known = set(classes)
    strange = sorted(found - known)
    if strange:
        raise UserError(
            f"{root}: {strange[0]} is no WordNet id of ImageNet's 1000 classes; for other classes "
            f"pass `data` {CORRUPTED_IMAGES}"
        )
    missing = sorted(known - found)
    if missing and not incomplete_allowed:
        raise UserError(
            f"{root} is incomplete: {len(missing)} of {len(classes)} class folders are missing, {missing[0]} first; "
            "name the images you have in a file and pass it as `subset`"
        )


def _listed(folder: Path, subset: str, inside: Confined | None) -> list[str]:
    try:
        lines = Path(subset).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"`subset` {subset}: cannot be read as UTF-8 text ({one_line(error)})") from error
    paths = []
    for number, line in enumerate(map(str.strip, lines), start=1):
        name = Path(line)
        if not line:
            continue
        if len(name.parts) != 2 or ".." in name.parts or name.is_absolute():
            raise UserError(f"{subset}, line {number}: expected class/name of an image, got {line!r}")
        path = str(folder / name)
        if not os.path.isfile(path):
            raise UserError(f"{subset}, line {number}: {path} does not exist")
        if inside is not None and not inside(path):
            raise UserError(f"{path} leads outside the dataset root; `allow_outside_root=True` accepts it")
        paths.append(path)
    return paths

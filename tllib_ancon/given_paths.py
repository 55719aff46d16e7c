"""Paths that a user gives: what is not there is said in one line."""

from __future__ import annotations

from pathlib import Path

from tllib_ancon.errors import UserError

IMAGENET = "imagenet"
"""The checkpoint that stands for an architecture with the ImageNet classifier of its model zoo."""


def new_file(out: str | Path, overwrite: bool = True, setting: str = "out") -> Path:
    """A file that is to be written once all is computed.

    Raises:
        UserError: its folder does not exist, or it is there and is not to be replaced
    """
    if not Path(out).parent.is_dir():
        raise UserError(f"`{setting}={out}`: the folder {Path(out).parent} does not exist; create it first")
    if Path(out).exists() and not overwrite:
        raise UserError(f"{out} exists; pass `overwrite=True` to replace it, or another `{setting}`")
    return Path(out)


def dataset_root(root: str | Path) -> Path:
    """The folder of a dataset, or :class:`UserError`."""
    if not Path(root).is_dir():
        raise UserError(f"dataset root {root} is not a folder; give the folder that holds the dataset")
    return Path(root)

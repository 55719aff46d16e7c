"""Paths that a person gives: what is not there is said at once, before anything heavy is imported."""

from __future__ import annotations

from pathlib import Path

from tllib_ancon.errors import UserError

IMAGENET = "imagenet"
"""The checkpoint that stands for an architecture with the ImageNet classifier of its model zoo."""


def dataset_root(root: str | Path) -> Path:
    """The folder of a dataset.

    Raises:
        UserError: it is no folder
    """
    if not Path(root).is_dir():
        raise UserError(f"dataset root {root} is not a folder; give the folder that holds the dataset")
    return Path(root)


def checkpoint_or_run(checkpoint: str) -> Path:
    """The file of a checkpoint or the folder of a run.

    Raises:
        UserError: it is neither
    """
    path = Path(checkpoint)
    if not path.is_file() and not path.is_dir():
        raise UserError(f"checkpoint {checkpoint} is not a file; give a checkpoint or a run directory")
    return path


def folder_of_runs(folder: str | Path) -> Path:
    """A run directory, or a folder that holds some.

    Raises:
        UserError: it is no folder
    """
    if not Path(folder).is_dir():
        raise UserError(f"{folder} is not a folder; give run directories or folders that hold them")
    return Path(folder)

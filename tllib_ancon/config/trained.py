"""What is done with trained models: predict, certify, export."""

from __future__ import annotations

from dataclasses import dataclass

from tllib_ancon.config.base import LARGEST_SEED, Config
from tllib_ancon.config.model import ModelConfig, StartConfig
from tllib_ancon.config.pictures import DataConfig, ImageConfig
from tllib_ancon.errors import UserError
from tllib_ancon.settings import setting

STANDARD_OUTPUT = "-"
"""The file that stands for standard output."""


@dataclass(frozen=True, kw_only=True, init=False)
class PredictConfig(StartConfig, ImageConfig, ModelConfig, DataConfig):
    """Which model says what it sees on which pictures; of ``evaluate`` and ``predict``."""

    batch_size: int = setting(64, "images in a step", flags=("-b",), metavar="B", at_least=1, group="images")
    workers: int = setting(2, "processes that load images", flags=("-j",), metavar="N", at_least=0, at_most=4096)
    threads: int | None = setting(
        None, "threads of PyTorch on the CPU; by default PyTorch's choice", metavar="N", at_least=1, at_most=4096
    )
    quiet: bool = setting(False, "show only errors and results")


@dataclass(frozen=True, kw_only=True, init=False)
class CertifyConfig(Config):
    """Which of a run's two models is better, by labels of a few images on which they disagree."""

    run: str = setting(help="run directory of an adaptation", metavar="RUN", group="run", common=True)
    root: str | None = setting(
        None,
        "folder of the dataset or of the images; by default the one that the run names",
        metavar="ROOT",
        group="run",
    )
    checkpoint: str | None = setting(
        None, "the start model; by default the one that the run names", metavar="FILE", group="run"
    )
    page: bool = setting(
        False, "ask for labels on a web page that only this machine can open", group="labels", common=True
    )
    port: int = setting(
        8765, "port of the page; 0 chooses a free one", metavar="N", at_least=0, at_most=65_535, group="labels"
    )
    answers: str | None = setting(
        None,
        "CSV file with path,class on each line; in place of a class it may say another or cannot tell",
        metavar="FILE",
        group="labels",
        common=True,
    )
    labels: str | None = setting(
        None, "image list whose labels answer every question, in place of a person", metavar="FILE", group="labels"
    )
    questions: str | None = setting(
        None, "CSV file to write, with the images to label in their order", metavar="FILE", group="labels", common=True
    )
    delta: float = setting(0.05, "largest probability of a false verdict", above=0, below=1, group="test", common=True)
    margin: float = setting(
        0.0,
        "difference of accuracy that does not matter, as a share of all images: 0.01 is one percentage point",
        at_least=0,
        below=1,
        group="test",
        common=True,
    )
    seed: int = setting(0, "seed of the order of the images", at_least=0, at_most=LARGEST_SEED, group="test")
    batch_size: int = setting(64, "images in a step", flags=("-b",), metavar="B", at_least=1)
    workers: int = setting(2, "processes that load images", flags=("-j",), metavar="N", at_least=0, at_most=4096)
    threads: int | None = setting(
        None, "threads of PyTorch on the CPU; by default PyTorch's choice", metavar="N", at_least=1, at_most=4096
    )
    quiet: bool = setting(False, "show only errors and results")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answers is not None and self.labels is not None:
            raise UserError("`answers` and `labels` exclude each other")


@dataclass(frozen=True, kw_only=True, init=False)
class PredictionsConfig(PredictConfig):
    """Which model predicts which pictures, and where the predictions go."""

    root: str | None = setting(
        None,
        "pictures: a folder, with its subfolders, an image list, or with --data and --target the folder of a dataset",
        metavar="IMAGES",
        group="pictures",
        common=True,
    )
    out: str = setting(
        "predictions.csv",
        "file to write, as .csv, .parquet or .npz by its ending; - writes CSV to standard output",
        metavar="FILE",
        group="predictions",
        common=True,
    )
    probabilities: bool = setting(False, "write the probability of every class, too", group="predictions", common=True)
    overwrite: bool = setting(False, "replace the file if it exists", group="predictions", common=True)


@dataclass(frozen=True, kw_only=True, init=False)
class ExportConfig(Config):
    """Which model is written in which form."""

    run: str = setting(help="run directory, or a checkpoint in one", metavar="RUN", group="model", common=True)
    format: str = setting(
        "onnx",
        "format of the file",
        choices=("onnx", "torch-export", "torchscript", "state-dict"),
        group="file",
        common=True,
    )
    out: str = setting(help="file to write", metavar="FILE", group="file", common=True)
    overwrite: bool = setting(False, "replace the file if it exists", group="file")

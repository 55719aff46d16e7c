"""Which model is written in which form."""

from typing import Annotated, Literal

from tllib_ancon.config.model import NetworkConfig
from tllib_ancon.config.settings import Flag


class ExportConfig(NetworkConfig):
    """Which model is written in which form."""

    FLAG = Flag(group="file", common=True)

    run: Annotated[str, Flag(group="model")]
    """run directory, or a checkpoint in one"""
    format: Literal["onnx", "torch-export", "state-dict"] = "onnx"
    """format of the file"""
    out: Annotated[str, Flag(metavar="FILE")]
    """file to write"""
    overwrite: bool = False
    """replace the file if it exists"""

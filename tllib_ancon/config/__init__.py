"""Every setting of a training, once: its type, default, range and help text.

Python keywords, command-line flags, TOML files, ``config.json`` and the plans of the paper's tables are all read from
these classes.
"""

from tllib_ancon.config.adapt import ADAPTED_PARAMETERS, BATCH_NORMS, CRITERIA, CRITERIA_OF_AN_EPOCH, AdaptConfig
from tllib_ancon.config.base import LARGEST_SEED, Config, SettingsType
from tllib_ancon.config.files import read_file, underscored
from tllib_ancon.config.inherited import ASSUMED, INHERITED, OF_THE_NETWORK
from tllib_ancon.config.model import ModelConfig, StartConfig
from tllib_ancon.config.pictures import DataConfig, ImageConfig
from tllib_ancon.config.pretrain import LOSSES, PRETRAINING, PretrainConfig
from tllib_ancon.config.trained import (
    STANDARD_OUTPUT,
    CertifyConfig,
    ExportConfig,
    PredictConfig,
    PredictionsConfig,
)
from tllib_ancon.config.training import MIXED_PRECISIONS, OptimizationConfig, RunConfig

__all__ = [
    "ADAPTED_PARAMETERS",
    "ASSUMED",
    "BATCH_NORMS",
    "CRITERIA",
    "CRITERIA_OF_AN_EPOCH",
    "INHERITED",
    "LARGEST_SEED",
    "LOSSES",
    "MIXED_PRECISIONS",
    "OF_THE_NETWORK",
    "PRETRAINING",
    "STANDARD_OUTPUT",
    "AdaptConfig",
    "CertifyConfig",
    "Config",
    "DataConfig",
    "ExportConfig",
    "ImageConfig",
    "ModelConfig",
    "OptimizationConfig",
    "PredictConfig",
    "PredictionsConfig",
    "PretrainConfig",
    "RunConfig",
    "SettingsType",
    "StartConfig",
    "read_file",
    "underscored",
]

"""How a network learns, and where its run is kept."""

from __future__ import annotations

from dataclasses import dataclass

from tllib_ancon.config.base import LARGEST_SEED, Config
from tllib_ancon.errors import UserError
from tllib_ancon.settings import setting

MIXED_PRECISIONS = ("no", "fp16", "bf16")


@dataclass(frozen=True, kw_only=True, init=False)
class OptimizationConfig(Config):
    """SGD, its schedule and the length of a training."""

    batch_size: int = setting(
        64,
        "images in a step, in each process",
        flags=("-b",),
        metavar="B",
        at_least=1,
        group="optimization",
        common=True,
        per_stage=True,
    )
    epochs: int = setting(
        30,
        "passes over the images",
        metavar="N",
        at_least=1,
        group="optimization",
        common=True,
        per_stage=True,
    )
    lr: float = setting(
        0.01,
        "learning rate of new layers; a pre-trained backbone learns at a tenth of it",
        flags=("--learning-rate",),
        above=0,
        group="optimization",
        common=True,
        per_stage=True,
    )
    lr_gamma: float = setting(
        10.0,
        "gamma of the learning rate lr (1 + gamma step/steps)^-decay, for cdan and mdd lr (1 + gamma step)^-decay",
        at_least=0,
        group="optimization",
        per_stage=True,
    )
    lr_decay: float = setting(
        0.75, "exponent of the learning rate's decay", at_least=0, group="optimization", per_stage=True
    )
    momentum: float = setting(
        0.9, "Nesterov momentum of SGD", at_least=0, below=1, group="optimization", per_stage=True
    )
    weight_decay: float = setting(
        1e-3,
        "weight decay of SGD",
        flags=("--wd",),
        at_least=0,
        group="optimization",
        per_stage=True,
    )
    hold_out: float = setting(
        0.1,
        "share of the images in the hold-out, which is not trained on and selects the epoch",
        at_least=0,
        below=1,
        group="optimization",
        per_stage=True,
    )
    mixed_precision: str = setting(
        "no",
        "floating-point type of the network's arithmetic; no is float32",
        choices=MIXED_PRECISIONS,
        group="optimization",
        per_stage=True,
    )
    channels_last: bool = setting(
        False,
        "store images with their channels last in memory, which is faster on many GPUs",
        group="optimization",
        per_stage=True,
    )
    compile: bool = setting(
        False,
        "compile the network by torch.compile, which needs Triton, or on a CPU a C++ compiler",
        group="optimization",
        per_stage=True,
    )
    fused: bool = setting(
        False, "make a step of SGD in one kernel, where the device has it", group="optimization", per_stage=True
    )


@dataclass(frozen=True, kw_only=True, init=False)
class RunConfig(Config):
    """Where a run is kept, its seed and what is shown."""

    log: str | None = setting(
        None,
        "run directory; by default runs/source, runs/adapted or runs/both by the command, and in Python none, which "
        "keeps nothing on disk",
        metavar="DIR",
        group="run",
        common=True,
        decides=False,
    )
    overwrite: bool = setting(
        False,
        "replace the run that is in the run directory; if the new run is cut off, the same command continues it",
        group="run",
        decides=False,
    )
    seed: int = setting(0, "seed of every random number", at_least=0, at_most=LARGEST_SEED, group="run", common=True)
    deterministic: bool = setting(
        False, "use only algorithms that give the same numbers on a GPU each time; they are slower", group="run"
    )
    threads: int | None = setting(
        None,
        "threads of PyTorch on the CPU; by default PyTorch's choice; results repeat exactly with the same number",
        metavar="N",
        at_least=1,
        at_most=4096,
        group="run",
        decides=False,
    )
    workers: int = setting(
        2,
        "processes that load images; training on two domains at once (CDAN, MDD) starts as many for each",
        flags=("-j",),
        metavar="N",
        at_least=0,
        at_most=4096,
        group="run",
        decides=False,
    )
    print_freq: int = setting(
        20,
        "steps between two readings of the loss for the progress line",
        flags=("-p",),
        metavar="N",
        at_least=1,
        group="run",
        decides=False,
    )
    track: str | None = setting(
        None,
        "log every epoch's numbers to this tracker too",
        choices=("tensorboard", "wandb", "mlflow"),
        group="run",
        decides=False,
    )
    quiet: bool = setting(False, "show only errors", group="run", decides=False)
    verbose: bool = setting(False, "show a line of progress every print_freq steps", group="run", decides=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quiet and self.verbose:
            raise UserError("`quiet` and `verbose` exclude each other")

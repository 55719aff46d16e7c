"""TLLib's flags, once, for every command."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from tllib_ancon.data.transforms import EVALUATION_RESIZINGS, TRAIN_RESIZINGS
from tllib_ancon.models.parameters import ADAPTED_PARAMETERS

MIXED_PRECISIONS = ("no", "fp16", "bf16")
SPEED_FIELDS = ("mixed_precision", "channels_last", "compile", "fused")
"""Options of every training that change its speed, and of the numbers the rounding."""


def add_domain_arguments(parser: argparse.ArgumentParser, source: bool, target: bool, required: bool = True) -> None:
    """``ROOT -d DATASET -s SOURCE -t TARGET``; not ``required`` for a command that can do without data."""
    group = parser.add_argument_group("domains")
    group.add_argument("root", metavar="ROOT", nargs=None if required else "?", help="folder of the dataset")
    group.add_argument(
        "-d",
        "--data",
        metavar="DATA",
        default="Office31",
        help="Office31, OfficeHome, VisDA2017, DomainNet, ...; ImageList: any folder with image_list/<domain>.txt; "
        "ImageNetC: corruption/severity/<WordNet id>/*; CorruptedImages: the same with other classes",
    )
    if source:
        group.add_argument("-s", "--source", nargs="+", required=not target, help="source domain(s)")
    if target:
        group.add_argument("-t", "--target", nargs="+", required=required, help="target domain(s)")
    group.add_argument("--subset", metavar="FILE", help="use these images of ImageNetC: class/name a line")
    group.add_argument("--num-classes", type=int, metavar="K", help="for ImageList without image_list/classes.txt")
    group.add_argument(
        "--allow-outside-root", action="store_true", help="accept image lists that name files outside ROOT"
    )
    group.add_argument(
        "--skip-corrupt", action="store_true", help="decode every image once before and leave out those that cannot be"
    )


def add_transform_arguments(parser: argparse.ArgumentParser, scale: tuple[float, float]) -> None:
    """TLLib's flags of the image transforms; ``scale`` is the default of the random resized crop."""
    group = parser.add_argument_group("images")
    group.add_argument("--train-resizing", default="default", choices=TRAIN_RESIZINGS, help="of training images")
    group.add_argument("--val-resizing", default="default", choices=EVALUATION_RESIZINGS, help="of evaluated images")
    group.add_argument("--resize-size", type=int, default=224, metavar="PX", help="side for the resizing res.")
    group.add_argument(
        "--image-size", type=int, default=224, metavar="PX", help="side of the crop; resized to 8/7 of it before"
    )
    group.add_argument(
        "--scale", type=float, nargs=2, default=scale, metavar=("MIN", "MAX"), help="area of the random crop"
    )
    group.add_argument(
        "--ratio", type=float, nargs=2, default=(3 / 4, 4 / 3), metavar=("MIN", "MAX"), help="its aspect"
    )
    group.add_argument("--padding", type=int, default=0, metavar="PX", help="pad training images, crop back at random")
    group.add_argument("--rotation", type=float, default=0.0, metavar="DEG", help="turn training images by up to this")
    group.add_argument("--no-hflip", action="store_true", help="no horizontal flips in training")
    group.add_argument("--cache", metavar="DIR", help="keep decoded and resized images here, 0.2 MB each at 256 pixels")
    group.add_argument(
        "--device-augmentation",
        action="store_true",
        help="crop and flip training images on the GPU, or in the main process; the same crops, rounded otherwise",
    )
    for name in ("mean", "std"):
        group.add_argument(
            f"--norm-{name}",
            type=float,
            nargs="+",
            metavar="X",
            help=f"{name} of the normalisation; by default what the architecture was trained with",
        )


def add_model_arguments(parser: argparse.ArgumentParser, bottleneck_dim: int | str = 256) -> None:
    """``-a ARCH`` and what belongs to it; ``bottleneck_dim`` is the default of that flag."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "-a", "--arch", default="resnet18", metavar="ARCH", help="torchvision ResNet, any timm model, small_cnn"
    )
    group.add_argument(
        "--arch-option", nargs="+", default=[], metavar="KEY=VALUE", help="of the timm model: pad_type=same"
    )
    group.add_argument(
        "--bottleneck-dim", type=int, default=bottleneck_dim, metavar="D", help="width of the bottleneck"
    )
    group.add_argument("--no-pool", action="store_true", help="no pooling after the backbone")
    group.add_argument(
        "--scratch", action="store_true", help="no pre-trained weights, and the backbone learns at the full rate"
    )


def add_pretrained_weights_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pretrained-weights", metavar="FILE", help="ImageNet weights of the backbone, .safetensors or .pth"
    )


def add_optimization_arguments(parser: argparse.ArgumentParser, defaults: Any) -> None:
    """SGD, its schedule and the length of training; ``defaults`` has these fields."""
    group = parser.add_argument_group("optimization")
    group.add_argument(
        "-b", "--batch-size", type=int, default=defaults.batch_size, metavar="B", help="images a step, of each process"
    )
    group.add_argument("--epochs", type=int, default=defaults.epochs, help="passes over the images")
    group.add_argument("--lr", "--learning-rate", type=float, default=defaults.lr, help="of new layers")
    group.add_argument("--lr-gamma", type=float, default=defaults.lr_gamma, help="lr (1 + gamma step/steps)^-decay")
    group.add_argument("--lr-decay", type=float, default=defaults.lr_decay, help="lr (1 + gamma step/steps)^-decay")
    group.add_argument("--momentum", type=float, default=defaults.momentum, help="of SGD, Nesterov")
    group.add_argument(
        "--wd", "--weight-decay", dest="weight_decay", type=float, default=defaults.weight_decay, help="of SGD"
    )
    group.add_argument("--hold-out", type=float, default=defaults.hold_out, help="fraction that selects the epoch")
    group.add_argument("--mixed-precision", default="no", choices=MIXED_PRECISIONS, help="of the network")
    group.add_argument("--channels-last", action="store_true", help="memory layout of images that GPUs prefer")
    group.add_argument("--compile", action="store_true", help="torch.compile; needs Triton, or a C++ compiler on a CPU")
    group.add_argument("--fused", action="store_true", help="SGD in one kernel, where the device has it")


def add_run_arguments(parser: argparse.ArgumentParser, log: str) -> None:
    """Where the run is kept, its seed and what is shown."""
    group = parser.add_argument_group("run")
    group.add_argument("--log", default=log, metavar="DIR", help="run directory")
    group.add_argument("--overwrite", action="store_true", help="start anew in a run directory that is in use")
    group.add_argument("--seed", type=int, default=0, help="of everything random")
    group.add_argument(
        "--deterministic", action="store_true", help="algorithms that give the same numbers on a GPU each time, slower"
    )
    add_loading_arguments(group)
    group.add_argument("-p", "--print-freq", type=int, default=20, metavar="N", help="steps between two readings")
    group.add_argument("--quiet", action="store_true", help="show errors only")
    group.add_argument("--verbose", action="store_true", help="a line every --print-freq steps")


def add_loading_arguments(parser: Any) -> None:
    parser.add_argument("-j", "--workers", type=int, default=2, metavar="N", help="processes that load images")


def add_method_arguments(parser: argparse.ArgumentParser, default: str) -> None:
    """``--method`` and a flag for each field that :func:`tllib_ancon.methods.settings` has."""
    from tllib_ancon import methods
    from tllib_ancon.selection import CRITERIA
    from tllib_ancon.settings import default_of, spec

    group = parser.add_argument_group("method")
    group.add_argument("--method", default=default, metavar="METHOD", help=", ".join(methods.names()))
    group.add_argument(
        "--criterion", default="infomax", choices=tuple(CRITERIA), help="selects the epoch, without labels"
    )
    group.add_argument("--adapted", default="all-but-head", choices=ADAPTED_PARAMETERS, help="parameters that learn")
    group.add_argument("--dropout", action="store_true", help="leave dropout on while pseudo-labels are taken")
    group.add_argument("--save-epochs", action="store_true", help="keep the model of every epoch")
    group.add_argument(
        "--save-predictions",
        action="store_true",
        help="keep logits, features and votes of every image as predictions.npz",
    )
    for name, option in methods.settings().items():
        flag = "--" + name.replace("_", "-")
        common = {"default": None, "help": f"{spec(option).help}; by default {default_of(option)}"}
        if option.type is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, **common)
        else:
            group.add_argument(flag, type=option.type, choices=spec(option).choices, **common)


def method_options(args: argparse.Namespace) -> dict[str, Any]:
    """The settings of the method, from the parsed arguments."""
    from tllib_ancon import methods

    given = {name: value for name, value in pick(args, methods.settings()).items() if value is not None}
    return methods.resolve(args.method, given, getattr(args, "data", None))


def pick(args: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(args, name) for name in names if hasattr(args, name)}


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Every resolved argument, for ``config.json``."""
    return {name: value for name, value in vars(args).items() if name != "module"}

"""What the person sees while a model trains."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

from tllib_ancon.training.launch import is_first


class Progress:
    """A progress bar a training epoch and a line after it, on standard error; of many processes the first shows them.

    Args:
        quiet (bool): show nothing. Default: False
        verbose (bool): also a line every ``print_freq`` steps, as TLLib's scripts print it. Default: False
    """

    def __init__(self, quiet: bool = False, verbose: bool = False):
        self.quiet = quiet or not is_first()
        self.verbose = verbose

    def bar(self, title: str, steps: int) -> tqdm:
        return tqdm(total=steps, desc=title, leave=False, disable=self.quiet or None, file=sys.stderr, unit="step")

    def step(self, bar: tqdm, step: int, values: dict[str, float]) -> None:
        text = " ".join(f"{name} {value:.4g}" for name, value in values.items())
        bar.set_postfix_str(text, refresh=False)
        if self.verbose and not self.quiet:
            tqdm.write(f"{bar.desc} [{step}/{bar.total}] {text}", file=sys.stderr)

    def line(self, text: str) -> None:
        if not self.quiet:
            tqdm.write(text, file=sys.stderr)


def epoch_summary(metrics: dict[str, Any], total: int) -> str:
    """One line on an epoch: the numbers that exist among loss, δ, votes, criteria, accuracy, ECE and speed."""
    shown = [
        ("loss", "loss", "{:.4f}"),
        ("threshold", "δ", "{:.3f}"),
        ("votes", "votes", "{:.0%}"),
        ("infomax", "InfoMax", "{:.4f}"),
        ("accuracy", "accuracy", "{:.2f} %"),
        ("ece", "ECE", "{:.3f}"),
        ("images_per_second", "images/s", "{:.0f}"),
    ]
    numbers = [f"{label} {form.format(metrics[name])}" for name, label, form in shown if name in metrics]
    return f"epoch {metrics['epoch']}/{total}: " + ", ".join(numbers)

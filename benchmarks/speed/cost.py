"""How long an adaptation takes, by network and number of images, from the runs of the ablation.

    python -m benchmarks.speed.cost

A run is ``ancon-auto`` with two views on one thread, three epochs (demo: six), with a score of each epoch.
"""

from pathlib import Path

import pandas as pd

RUNS = Path(__file__).resolve().parents[1] / "ablation" / "runs.csv"
NETWORKS = {
    "demo": ("`small_cnn`, 28 pixels", 6),
    "digits": ("LeNet of SHOT, 28 pixels", 3),
    "cifar10-c": ("ResNet-20, 32 pixels", 3),
    "office31": ("MobileNetV2, 96 pixels", 3),
}
"""Family -> network with the size of its images, and epochs of a run."""


def table() -> str:
    """The median of the seconds of an epoch by network, and by number of images."""
    runs = pd.read_csv(RUNS).query("study == 'parts' and variant == 'ancon-auto'")
    lines = ["| network | images | an epoch, s | 1,000 images, s |", "|---|---:|---:|---:|"]
    for family, (network, epochs) in NETWORKS.items():
        of_family = runs[runs.family == family]
        for images in sorted({of_family.images.min(), of_family.images.max()}):
            seconds = of_family.seconds[of_family.images == images].median() / epochs
            lines.append(f"| {network} | {images:,.0f} | {seconds:.1f} | {1000 * seconds / images:.1f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")

"""What the filter that resizes pictures changes: a start that was trained with bicubic ones, adapted on either.

    python -m benchmarks.evidence.resizing OFFICE31 OUT [--domain D] [--side 146] [--seeds 0 1 2]

OUT is that of ``run.sh``, whose source models of Amazon it starts from. TLLib and the authors resize with Pillow's
default, which is bicubic; torchvision's default is bilinear. The pictures are resized beforehand and written without
loss, so that everything else is the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from PIL import Image

from tllib_ancon import adapt
from tllib_ancon.data.open import open_domain

FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("office31", metavar="OFFICE31")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--domain", default="D", help="target (default: D)")
    parser.add_argument("--side", type=int, default=146, help="pixels to which pictures are resized (default: 146)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    accuracies = {}
    for seed in args.seeds:
        for name in FILTERS:
            root = resized(args.office31, args.domain, args.side, name, args.out / "resized" / name)
            start, *_, last = adapted(args.out, root, args.domain, name, seed)
            accuracies[seed, name] = {"start": start["accuracy"], "after AnCon": last["accuracy"]}
    runs = pd.DataFrame.from_dict(accuracies, orient="index")
    differences = runs.xs("bicubic", level=1) - runs.xs("bilinear", level=1)
    print(runs.round(2), "\nbicubic - bilinear, standard error:", differences.agg(["mean", "sem"]).round(2), sep="\n")


def resized(office31: str, code: str, side: int, name: str, folder: Path) -> Path:
    """The same domain as an image list of resized pictures."""
    domain, lists = open_domain(office31, "Office31", [code]), folder / "image_list"
    if not (lists / f"{code}.txt").exists():
        lists.mkdir(parents=True, exist_ok=True)
        (lists / "classes.txt").write_text("\n".join(domain.classes) + "\n")
        lines = []
        for number, (path, label) in enumerate(zip(domain.paths, domain.labels, strict=True)):
            with Image.open(path) as image:
                image.convert("RGB").resize((side, side), FILTERS[name]).save(folder / f"{number}.png")
            lines.append(f"{number}.png {label}\n")
        (lists / f"{code}.txt").write_text("".join(lines))
    return folder


def adapted(out: Path, root: Path, code: str, name: str, seed: int) -> list[dict[str, float]]:
    """The numbers of each epoch, with the settings of ``office31.toml``."""
    images = {"root": str(root), "data": "ImageList", "target": (code,), "resize_size": 146, "image_size": 128}
    training = {"epochs": 5, "batch_size": 32, "lr": 0.01, "channels_last": True, "threads": 1, "workers": 0}
    checkpoint, log = str(out / f"runs/source/erm-A-seed{seed}"), str(out / f"resizing/{name}-seed{seed}")
    return adapt(checkpoint=checkpoint, log=log, method="ancon", seed=seed, quiet=True, **images, **training).metrics


if __name__ == "__main__":
    main()

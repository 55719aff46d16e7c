"""What the filter that resizes pictures changes: a start that was trained with bicubic ones, adapted on either.

    python -m benchmarks.evidence.resizing OFFICE31 OUT [--domain D] [--side 146] [--seeds 0 1 2]

OUT is that of ``run.sh``, whose source models of Amazon it starts from. TLLib and the authors resize with Pillow's
default, which is bicubic; torchvision's default is bilinear. The pictures are resized beforehand and written without
loss, so that everything else is the same.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from PIL import Image

from tllib_ancon import adapt
from tllib_ancon.data.domains import open_domain

FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence.resizing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("office31", metavar="OFFICE31")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--domain", default="D", help="target (default: D)")
    parser.add_argument("--side", type=int, default=146, help="pixels to which pictures are resized (default: 146)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    rows = []
    for seed in args.seeds:
        for name in FILTERS:
            root = resized(args.office31, args.domain, args.side, name, args.out / "resized" / name)
            metrics = adapted(args.out, root, args.domain, name, seed)
            rows.append((seed, name, metrics[0]["accuracy"], metrics[-1]["accuracy"]))
            print(f"seed {seed}, {name}: start {rows[-1][2]:.2f}, after AnCon {rows[-1][3]:.2f}", flush=True)
    for what, column in (("start", 2), ("after AnCon", 3)):
        by_filter = {name: [row[column] for row in rows if row[1] == name] for name in FILTERS}
        differences = [one - other for one, other in zip(*by_filter.values(), strict=True)]
        error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else float("nan")
        print(f"{what}: bicubic - bilinear {statistics.fmean(differences):+.2f}, standard error {error:.2f}")


def resized(office31: str, code: str, side: int, name: str, folder: Path) -> Path:
    """The same domain as an image list of resized pictures."""
    domain = open_domain(office31, "Office31", [code])
    assert domain.paths is not None
    assert domain.labels is not None
    lists = folder / "image_list"
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
    result = adapt(
        checkpoint=str(out / "runs/source" / f"erm-A-seed{seed}"),
        root=str(root),
        data="ImageList",
        target=(code,),
        method="ancon",
        seed=seed,
        epochs=5,
        batch_size=32,
        lr=0.01,
        channels_last=True,
        threads=1,
        workers=0,
        resize_size=146,
        image_size=128,
        log=str(out / "resizing" / f"{name}-seed{seed}"),
        quiet=True,
    )
    return result.metrics


if __name__ == "__main__":
    main()

"""Image lists of parts of MNIST and USPS: a source, a target and a test part of each.

    python -m benchmarks.tables.digits.lists DIGITS OUT

``DIGITS`` is what ``benchmarks.tables.digits.to_tllib`` wrote. ``OUT`` receives lists alone, of the images where they
lie (``-d ImageList --allow-outside-root``).
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks import parser, run
from tllib_ancon.data.lists import read_image_list
from tllib_ancon.runtime.errors import UserError

PARTS = {"source": ("train", 10_000), "target": ("train", 4_000), "test": ("test", 2_000)}
"""Part -> its split and number of images: the first ones, which are in random order."""


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("digits", type=Path, metavar="DIGITS", help="folder of MNIST and USPS")
    arguments.add_argument("out", type=Path, metavar="OUT", help="folder to write to")
    args = arguments.parse_args(words)
    write(args.digits, args.out)


def write(digits: Path, out: Path) -> None:
    """``image_list/<domain>_<part>.txt`` and ``classes.txt``, in TLLib's form with absolute paths."""
    folder = out / "image_list"
    folder.mkdir(parents=True, exist_ok=True)
    for domain in ("mnist", "usps"):
        root = digits / domain.upper()
        for part, (split, images) in PARTS.items():
            paths, labels = read_image_list(root / "image_list" / f"{domain}_{split}.txt", root)
            if labels is None:
                raise UserError(f"{domain}_{split}.txt has no labels")
            samples = zip(paths[:images], labels.tolist()[:images], strict=True)
            lines = (f"{Path(path).resolve()} {label}\n" for path, label in samples)
            (folder / f"{domain}_{part}.txt").write_text("".join(lines), encoding="utf-8")
    (folder / "classes.txt").write_text("".join(f"{digit}\n" for digit in range(10)), encoding="utf-8")


if __name__ == "__main__":
    run(main)

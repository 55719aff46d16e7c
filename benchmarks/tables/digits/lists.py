"""Image lists of parts of MNIST and USPS: a source, a target and a test part of each.

    python -m benchmarks.tables.digits.lists DIGITS

``DIGITS`` is what ``benchmarks.tables.digits.to_tllib`` wrote. It receives lists of its images (``-d ImageList``).
"""

from pathlib import Path

from benchmarks import parser, run

PARTS = {"source": ("train", 10_000), "target": ("train", 4_000), "test": ("test", 2_000)}
"""Part -> its split and number of images: the first ones, which are in random order."""


def main(words=None):
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("digits", type=Path, metavar="DIGITS", help="folder of MNIST and USPS")
    args = arguments.parse_args(words)
    write(args.digits)


def write(digits):
    """``image_list/<domain>_<part>.txt`` and ``classes.txt``, in TLLib's form."""
    folder = digits / "image_list"
    folder.mkdir(parents=True, exist_ok=True)
    for domain in ("mnist", "usps"):
        root = digits / domain.upper()
        for part, (split, images) in PARTS.items():
            lines = (root / "image_list" / f"{domain}_{split}.txt").read_text().splitlines()[:images]
            below = "".join(f"{root.name}/{line}\n" for line in lines)
            (folder / f"{domain}_{part}.txt").write_text(below, encoding="utf-8")
    (folder / "classes.txt").write_text("".join(f"{digit}\n" for digit in range(10)), encoding="utf-8")


if __name__ == "__main__":
    run(main)

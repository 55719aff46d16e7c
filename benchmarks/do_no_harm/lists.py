"""Image lists of the settings: whole domains, and parts of them whose classes are far from balanced.

    python -m benchmarks.do_no_harm.lists OUT --office31 OFFICE31 --digits DIGITS

``OFFICE31`` is in TLLib's layout and ``DIGITS`` is what ``benchmarks.digits.to_tllib`` wrote. ``OUT/office31`` and
``OUT/digits`` receive lists alone, of the images where they lie (``-d ImageList --allow-outside-root``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from tllib_ancon.data.image_list import read_image_list
from tllib_ancon.errors import UserError

OFFICE31 = ("amazon", "dslr", "webcam")
TAIL = 20
"""Times that the first class of the long tail is as large, compared with the whole domain's, as the last."""
FEW_CLASSES = 10
DIGITS_SOURCE, DIGITS_TARGET, DIGITS_TEST = 10_000, 4_000, 2_000
"""Images of a domain that a source model is trained on, that are adapted to, and those of the test split."""


class Sample(NamedTuple):
    """One image of a list."""

    path: str
    label: int


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.do_no_harm.lists",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write to")
    parser.add_argument("--office31", type=Path, required=True, metavar="OFFICE31", help="root of Office-31")
    parser.add_argument("--digits", type=Path, required=True, metavar="DIGITS", help="folder of MNIST and USPS")
    args = parser.parse_args(words)
    try:
        write(args.out / "office31", office31_domains(args.office31))
        write(args.out / "digits", digits_domains(args.digits))
    except UserError as error:
        print(f"lists: error: {error}", file=sys.stderr)
        return 2
    return 0


def read(list_file: Path, root: Path) -> list[Sample]:
    """The images of a labelled list."""
    paths, labels = read_image_list(list_file, root)
    if labels is None:
        raise UserError(f"{list_file} has no labels")
    return [Sample(path, label) for path, label in zip(paths, labels.tolist(), strict=True)]


def office31_domains(root: Path) -> dict[str, list[Sample]]:
    """The three domains and two parts of Amazon."""
    domains = {name: read(root / "image_list" / f"{name}.txt", root) for name in OFFICE31}
    return {
        **domains,
        "amazon_long_tail": long_tail(domains["amazon"]),
        "amazon_few_classes": [sample for sample in domains["amazon"] if sample.label < FEW_CLASSES],
    }


def digits_domains(root: Path) -> dict[str, list[Sample]]:
    """The first images of each split, which are in random order."""
    domains: dict[str, list[Sample]] = {}
    for name in ("mnist", "usps"):
        folder = root / name.upper()
        samples = read(folder / "image_list" / f"{name}_train.txt", folder)
        tested = read(folder / "image_list" / f"{name}_test.txt", folder)
        domains |= {
            f"{name}_source": samples[:DIGITS_SOURCE],
            f"{name}_target": samples[:DIGITS_TARGET],
            f"{name}_test": tested[:DIGITS_TEST],
        }
    return domains


def long_tail(samples: Sequence[Sample]) -> list[Sample]:
    """Of class k among K the first :math:`n_k T^{-k/(K-1)}` images, at least one; T is :data:`TAIL`."""

    def label(sample: Sample) -> int:
        return sample.label

    kept: list[Sample] = []
    most = max(map(label, samples))
    for number, group in groupby(sorted(samples, key=label), key=label):
        members = list(group)
        kept += members[: max(1, round(len(members) * TAIL ** (-number / most)))]
    return kept


def write(root: Path, domains: Mapping[str, Sequence[Sample]]) -> None:
    """``image_list/<domain>.txt`` and ``classes.txt``, in TLLib's form with absolute paths."""
    folder = root / "image_list"
    folder.mkdir(parents=True, exist_ok=True)
    for name, samples in domains.items():
        lines = (f"{Path(sample.path).resolve()} {sample.label}\n" for sample in samples)
        (folder / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    every = {sample.label: class_of(sample) for samples in domains.values() for sample in samples}
    (folder / "classes.txt").write_text("".join(f"{every[label]}\n" for label in sorted(every)), encoding="utf-8")


def class_of(sample: Sample) -> str:
    """Office-31's folder of a class; a digit is its own name."""
    folder = Path(sample.path).parent.name
    return str(sample.label) if folder.endswith("_image") else folder


if __name__ == "__main__":
    sys.exit(main())

"""Image lists of the settings: whole domains, and parts of them whose classes are far from balanced.

    python -m benchmarks.do_no_harm.lists OUT --office31 OFFICE31 --digits DIGITS

``OFFICE31`` is in TLLib's layout and ``DIGITS`` is what ``benchmarks.digits.to_tllib`` wrote. ``OUT/office31`` and
``OUT/digits`` receive lists alone, of the images where they lie (``-d ImageList --allow-outside-root``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from benchmarks.do_no_harm import parser, run
from tllib_ancon.data.open import read_image_list
from tllib_ancon.errors import UserError

OFFICE31 = ("amazon", "dslr", "webcam")
TAIL = 20
"""Times that the first class of the long tail is as large, compared with the whole domain's, as the last."""
FEW_CLASSES = 10
DIGITS_SOURCE, DIGITS_TARGET, DIGITS_TEST = 10_000, 4_000, 2_000
"""Images of a domain that a source model is trained on, that are adapted to, and those of the test split."""


def main(words: Sequence[str] | None = None) -> None:
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("out", type=Path, metavar="OUT", help="folder to write to")
    arguments.add_argument("--office31", type=Path, required=True, metavar="OFFICE31", help="root of Office-31")
    arguments.add_argument("--digits", type=Path, required=True, metavar="DIGITS", help="folder of MNIST and USPS")
    args = arguments.parse_args(words)
    write(args.out / "office31", office31_domains(args.office31))
    write(args.out / "digits", digits_domains(args.digits))


def read(list_file: Path, root: Path) -> pd.DataFrame:
    """``path`` and ``label`` of each image of a labelled list."""
    paths, labels = read_image_list(list_file, root)
    if labels is None:
        raise UserError(f"{list_file} has no labels")
    return pd.DataFrame({"path": paths, "label": labels.tolist()})


def office31_domains(root: Path) -> dict[str, pd.DataFrame]:
    """The three domains and two parts of Amazon."""
    domains = {name: read(root / "image_list" / f"{name}.txt", root) for name in OFFICE31}
    amazon = domains["amazon"]
    few = amazon[amazon.label < FEW_CLASSES]
    return {**domains, "amazon_long_tail": long_tail(amazon), "amazon_few_classes": few}


def digits_domains(root: Path) -> dict[str, pd.DataFrame]:
    """The first images of each split, which are in random order."""
    domains = {}
    for name in ("mnist", "usps"):
        folder = root / name.upper()
        train, test = (read(folder / "image_list" / f"{name}_{split}.txt", folder) for split in ("train", "test"))
        parts = {"source": train[:DIGITS_SOURCE], "target": train[:DIGITS_TARGET], "test": test[:DIGITS_TEST]}
        domains |= {f"{name}_{part}": samples for part, samples in parts.items()}
    return domains


def long_tail(samples: pd.DataFrame) -> pd.DataFrame:
    """Of class k among K the first :math:`n_k T^{-k/(K-1)}` images, at least one; T is :data:`TAIL`."""
    classes = samples.groupby("label").path
    kept = classes.transform("size") * TAIL ** (-samples.label / samples.label.max())
    return samples[classes.cumcount() < kept.round().clip(lower=1)].sort_values("label", kind="stable")


def write(root: Path, domains: Mapping[str, pd.DataFrame]) -> None:
    """``image_list/<domain>.txt`` and ``classes.txt``, in TLLib's form with absolute paths."""
    folder = root / "image_list"
    folder.mkdir(parents=True, exist_ok=True)
    for name, samples in domains.items():
        lines = (f"{Path(path).resolve()} {label}\n" for path, label in zip(samples.path, samples.label, strict=True))
        (folder / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    every = pd.concat(domains.values()).drop_duplicates("label", keep="last").sort_values("label")
    names = "".join(f"{class_of(path, label)}\n" for path, label in zip(every.path, every.label, strict=True))
    (folder / "classes.txt").write_text(names, encoding="utf-8")


def class_of(path: str, label: int) -> str:
    """Office-31's folder of a class; a digit is its own name."""
    folder = Path(path).parent.name
    return str(label) if folder.endswith("_image") else folder


if __name__ == "__main__":
    run(main)

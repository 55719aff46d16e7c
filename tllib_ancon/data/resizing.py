"""The first step of every image transform, which has no randomness and can be cached."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

from tllib_ancon.data.hugging_face import HUGGING_FACE
from tllib_ancon.data.image_folder import FOLDER, IMAGE_FOLDER
from tllib_ancon.errors import UserError

KEEP_RATIO = "keep-ratio"
TRAIN_RESIZINGS = ("default", "cen.crop", "ran.crop", "res.", KEEP_RATIO)
EVALUATION_RESIZINGS = ("default", "res.", KEEP_RATIO)


def default_resizing(dataset: str) -> tuple[str, str]:
    """The training and the evaluation resizing of a dataset by its name: TLLib's square where its lists or layout are
    read, the aspect ratio kept for pictures as they lie on disk (``ImageFolder``, ``Folder``, ``hf:NAME``) and for what
    a program holds (no name)."""
    kept = dataset in ("", IMAGE_FOLDER, FOLDER) or dataset.startswith(HUGGING_FACE)
    return (KEEP_RATIO, KEEP_RATIO) if kept else ("default", "default")


@dataclass(frozen=True)
class Resizing:
    """PIL image -> PIL image, by Pillow's bicubic filter, its default and so that of TLLib's ``ResizeImage``.

    Attributes:
        side: in pixels, of the square that the image is squashed to, or of its shorter side
        keep_ratio: resize the shorter side, and the longer one in proportion

    Raises:
        UserError: an image so narrow that it would exceed Pillow's limit of pixels
    """

    side: int
    keep_ratio: bool = False

    def __call__(self, image: Image.Image) -> Image.Image:
        return image.resize(self.size(image.size), Image.Resampling.BICUBIC)

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """(width, height) of an image -> that of the resized one."""
        if not self.keep_ratio:
            return self.side, self.side
        shorter, longer = min(size), max(size)
        longer_side = self.side * longer // shorter
        limit = Image.MAX_IMAGE_PIXELS
        if limit is not None and self.side * longer_side > limit:
            raise UserError(
                f"an image of {size[0]} x {size[1]} pixels, its shorter side resized to {self.side}, would have "
                f"{self.side * longer_side:,}; at most {limit:,} are allowed"
            )
        return (self.side, longer_side) if size[0] <= size[1] else (longer_side, self.side)

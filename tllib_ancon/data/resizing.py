"""The first step of every image transform, which has no randomness and can be cached."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

from tllib_ancon.errors import UserError


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

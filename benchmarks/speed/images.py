"""Drawn images for the measurements."""

import numpy as np
from PIL import Image


def draw_images(folder, count):
    """Pictures of 256² with edges and noise, as JPEG files of about 20 kB."""
    generator = np.random.default_rng(0)
    for number in range(count):
        coarse = Image.fromarray(generator.integers(0, 256, (16, 16, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((256, 256))).astype(float) + generator.normal(0, 8, (256, 256, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number}.jpg", quality=90)

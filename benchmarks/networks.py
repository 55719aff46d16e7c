"""Source models: small networks that are trained here, and a MobileNetV2 with ImageNet's weights."""

from functools import partial

import torch
from torch import nn

BATCH = 64
LARGEST_SHIFT = 1 / 8
"""Of a training image, as a fraction of its side."""


def pooled(classes):
    """Three convolutions with batch-norm, and the mean over the image."""
    blocks = []
    for channels_in, channels in ((3, 16), (16, 32), (32, 64)):
        blocks += [nn.Conv2d(channels_in, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def two_convolutions(classes, norm):
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 5), norm(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5), norm(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.LazyLinear(classes)),
    )


def mobilenet(classes, weights):
    """timm's MobileNetV2 with ImageNet's weights and a new classifier."""
    import timm
    from safetensors.torch import load_file

    network = timm.create_model("mobilenetv2_100", pad_type="same")
    network.load_state_dict(load_file(weights))
    network.reset_classifier(classes)
    return network.to(memory_format=torch.channels_last)  # steps take two thirds of the time


SMALL = {
    "pooled": pooled,
    "group-norm": partial(two_convolutions, norm=partial(nn.GroupNorm, 4)),
    "layer-norm": partial(two_convolutions, norm=partial(nn.GroupNorm, 1)),
}
"""Name → network by the number of classes, for images of 28 or 32 pixels."""


def train(network, images, labels, steps, mirror, seed, learning_rate=1e-3):
    """Train on normalised images (N, 3, H, W), shifted at random and mirrored if ``mirror``, by Adam."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    network.train()
    for _ in range(steps):
        batch = torch.randint(len(images), (BATCH,), generator=generator)
        loss = nn.functional.cross_entropy(network(_augmented(images[batch], mirror, generator)), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return network.eval()


def _augmented(images, mirror, generator):
    shift = round(images.shape[-1] * LARGEST_SHIFT)
    left, top = torch.randint(2 * shift + 1, (2,), generator=generator).tolist()
    padded = nn.functional.pad(images, (shift,) * 4, mode="replicate")
    shifted = padded[:, :, top : top + images.shape[2], left : left + images.shape[3]]
    if not mirror:
        return shifted
    is_mirrored = torch.rand(len(images), 1, 1, 1, generator=generator) < 1 / 2
    return torch.where(is_mirrored, shifted.flip(3), shifted)


def normalised(images, mean, std):
    """uint8 images (N, H, W) or (N, H, W, 3) → float tensor (N, 3, H, W)."""
    pixels = torch.from_numpy(images)
    if pixels.ndim == 3:
        pixels = pixels[..., None].expand(-1, -1, -1, 3)
    return (pixels.permute(0, 3, 1, 2) / 255 - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]

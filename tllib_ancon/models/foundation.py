"""Heads and networks of models that know images and texts."""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tllib_ancon.data.transforms import Preprocessing


class CosineHead(nn.Module):
    """The head of a zero-shot classifier: cosine similarities between images and the texts of the classes.

    .. math::
        logits = s \\frac{z}{\\|z\\|} \\frac{W^T}{\\|W\\|}

    Args:
        text_embeddings: W, (K, D), one row a class
        logit_scale: s, the factor itself: of CLIP and SigLIP ``model.logit_scale.exp()``

    Inputs: image embeddings z, (B, D), normalised or not

    Outputs: logits (B, K)

    Source: Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021, Figure 3
    """

    logit_scale: Tensor

    def __init__(self, text_embeddings: Tensor, logit_scale: float | Tensor = 100.0):
        super().__init__()
        self.out_features, self.in_features = text_embeddings.shape
        self.weight = nn.Parameter(functional.normalize(text_embeddings.detach(), dim=1))
        self.register_buffer("logit_scale", torch.as_tensor(logit_scale).detach().to(self.weight, copy=True))

    def forward(self, features: Tensor) -> Tensor:
        images = functional.normalize(features, dim=1)
        texts = functional.normalize(self.weight, dim=1)
        return self.logit_scale * images @ texts.T


class ZeroShotClassifier(nn.Sequential):
    """The image side of a model of open_clip and as its ``head`` the texts of the classes. ``options`` are those of
    open_clip's configuration and ``num_classes``; weights are random."""

    preprocessing: Preprocessing | None = None  # of the image side

    def __init__(self, **options: Any):
        import open_clip

        vision_options = {**options["vision_cfg"], "timm_model_pretrained": False}
        smallest_text_side = open_clip.CLIPTextCfg(context_length=1, vocab_size=1, width=8, heads=1, layers=1)
        whole = open_clip.CLIP(options["embed_dim"], vision_options, smallest_text_side, options["quick_gelu"])
        head = CosineHead(torch.ones(options["num_classes"], options["embed_dim"]))
        super().__init__(OrderedDict(visual=whole.visual, head=head))
        self.options = options

"""Models of transformers, timm and open_clip get images as their libraries prepare them; what cannot learn is said."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import tllib_ancon
from tests.domains_on_disk import write_domain
from tests.end_to_end.killable import differences
from tests.networks import TINY, TRANSFORMERS, VIT, transformer
from tests.support.refusals import one_line
from tllib_ancon.models import CosineHead
from tllib_ancon.models.preprocessing import preprocessing_of

transformers = pytest.importorskip("transformers", minversion="5")

QUICK = {"epochs": 1, "batch_size": 4, "workers": 0, "quiet": True, "seed": 3}
NEIGHBOURS = {"neighbors": 2, "expanded_neighbors": 2}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    write_domain(folder, "dark", 12, seed=0)
    return folder / "dark"


def test_images_are_prepared_by_the_processor_beside_the_model_or_by_the_one_that_is_given(photos, tmp_path, capsys):
    mean = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    processor = transformers.CLIPImageProcessorPil(
        size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32}, **mean
    )
    fresh = transformer()
    for part in (fresh, processor):
        part.save_pretrained(tmp_path)
    saved = transformers.ViTForImageClassification.from_pretrained(tmp_path)
    seen = []
    fresh.register_forward_pre_hook(lambda _, args, named: seen.append(named["pixel_values"]), with_kwargs=True)
    own = tllib_ancon.predict(saved, photos, workers=0)
    given = tllib_ancon.predict(fresh, photos, workers=0, evaluation_transform=processor)
    assert np.array_equal(own.probabilities, given.probabilities)
    expected = processor([Image.open(path) for path in own.paths], return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(torch.cat(seen), expected, rtol=0, atol=1e-6)
    quick = {**QUICK, "quiet": False}
    of_saved = tllib_ancon.adapt(saved, photos, **quick).model.state_dict()
    saved_again = transformers.ViTForImageClassification.from_pretrained(tmp_path)
    of_saved_again = tllib_ancon.adapt(saved_again, photos, **quick).model.state_dict()
    of_fresh = tllib_ancon.adapt(fresh, photos, evaluation_transform=processor, **quick).model.state_dict()
    assert "assumed" not in capsys.readouterr().err
    assert differences(of_saved, of_saved_again) == []
    assert differences(of_saved, of_fresh) == []
    with one_line("`train_transform`"):
        tllib_ancon.adapt(fresh, photos, evaluation_transform=transformers.Siglip2ImageProcessor(), **QUICK)


def test_of_a_model_without_a_processor_a_line_says_what_is_assumed(photos, capsys):
    model = transformer()
    tllib_ancon.adapt(model, photos, **{**QUICK, "quiet": False})
    told = capsys.readouterr().err
    assert "no processor of this ViTForImageClassification is on this machine; assumed: ViTImageProcessor" in told
    assert (
        "at 32 pixels (mean (0.5, 0.5, 0.5), std (0.5, 0.5, 0.5)); else pass `image_size`, `norm_mean` and `norm_std`, "
        "or in Python evaluation_transform=processor" in told
    )
    clip = transformers.CLIPForImageClassification(transformers.CLIPConfig(**TRANSFORMERS["Siglip"]))
    assert preprocessing_of(clip).mean == (0.48145466, 0.4578275, 0.40821073)
    tllib_ancon.adapt(model, list(torch.zeros(8, 3, 32, 32)), **{**QUICK, "quiet": False})
    assert "assumed" not in capsys.readouterr().err


def test_clip_with_the_texts_of_its_classes_is_adapted(photos):
    open_clip = pytest.importorskip("open_clip")
    torch.manual_seed(0)
    vision = {"image_size": 32, "layers": 1, "width": 64, "patch_size": 8}
    text = {"context_length": 4, "vocab_size": 8, "width": 16, "heads": 2, "layers": 1}
    clip = open_clip.CLIP(16, open_clip.CLIPVisionCfg(**vision), open_clip.CLIPTextCfg(**text)).eval()
    texts = clip.encode_text(torch.eye(3, 4, dtype=torch.long))
    normalised = {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6), "mode": "RGB", "fill_color": 0}
    clip.visual.preprocess_cfg = {"size": (32, 32), "interpolation": "bicubic", "resize_mode": "shortest", **normalised}
    for model in (clip, transformers.CLIPModel(transformers.CLIPConfig(vision_config=VIT, text_config=TINY))):
        with one_line("gives embeddings of images and texts, no logits"):
            tllib_ancon.adapt(model, photos, **QUICK)
    zero_shot = nn.Sequential(clip.visual, CosineHead(texts, clip.logit_scale.exp()))
    theirs = open_clip.image_transform(32, False, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    expected = tllib_ancon.predict(zero_shot, photos, workers=0, evaluation_transform=theirs)
    found = tllib_ancon.predict(zero_shot, photos, workers=0)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-6)
    result = tllib_ancon.adapt(zero_shot, photos, method="nrc", **NEIGHBOURS, **QUICK)
    assert differences(zero_shot.state_dict(), result.model.state_dict())
    assert torch.equal(result.model[1].weight, zero_shot[1].weight)


def test_what_cannot_be_adapted_says_why(photos):
    with torch.device("meta"):
        empty = nn.Linear(3, 5)
    for use in (tllib_ancon.adapt, tllib_ancon.predict):
        with one_line("on the device meta"):
            use(nn.Sequential(empty), photos)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    images = list(torch.randn(8, 3, 8, 8))
    named, integers = (nn.Sequential(nn.Flatten(), nn.Linear(192, 5)) for _ in range(2))
    named.quantization_method = "bitsandbytes"
    weight = integers[1].weight.detach().to(torch.int8)
    integers[1].weight = nn.Parameter(weight, requires_grad=False)
    quantised = {"quantization_method": named, "torch.int8": integers}
    if "qnnpack" in torch.backends.quantized.supported_engines:
        torch.backends.quantized.engine = "qnnpack"
        quantised["Linear"] = torch.ao.quantization.quantize_dynamic(plain)
    for what, model in quantised.items():
        with one_line(rf"quantised \({what}.*have no gradient"):
            tllib_ancon.adapt(model, images, **QUICK)

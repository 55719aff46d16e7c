"""A source model is trained with all that its settings name, and notes say what is left out or looks wrong."""

from PIL import Image

from tllib_ancon.config.pretrain import PretrainConfig
from tllib_ancon.opening.pretraining import open_pretraining
from tllib_ancon.runtime.notes import Note
from tllib_ancon.toolkit.toolkit import find


def read(path):
    return Image.open(path)


def test_both_domains_the_network_and_the_record_of_the_run_are_opened(copied):
    lists = copied / "image_list"
    (lists / "classes.txt").unlink()
    lines = (lists / "bright.txt").read_text().splitlines()
    (lists / "bright.txt").write_text("\n".join([*lines, lines[0][:-1] + "9"]))
    for name in ("bright", "dark"):
        (copied / name / "green" / "001.png").write_bytes(b"")
    settings = PretrainConfig(
        **{"root": copied, "data": "ImageList", "source": ["bright"], "target": ["dark"], "method": "mdd"},
        **{"arch": "timm/test_resnet", "arch_option": ["in_chans=1"], "scratch": True, "skip_corrupt": True},
        **{"norm_mean": [0.5], "norm_std": [0.5], "workers": 0, "epochs": 3},
    )
    opened = open_pretraining(settings, find(), read, {"image_size": 24, "epochs": 5})
    assert (opened.settings.image_size, opened.settings.epochs) == (24, 3)
    assert opened.probe.shape == (8, 1, 24, 24)
    assert opened.backbone(opened.probe).shape[0] == 8
    assert not opened.backbone.pretrained
    for domain, count in ((opened.source, 60), (opened.target, 47)):
        assert (len(domain), len(domain.labels), domain.reader.loader) == (count, count, f"{__name__}:read")
        assert [*domain.classes] == [*"0123456789"]
    assert opened.target.labels.tolist() == [number % 3 for number in range(48) if number != 1]
    codes = ["skipped-images", "skipped-image", "number-of-classes", "skipped-images", "skipped-image"]
    assert [note.code for note in opened.notes] == codes
    assert opened.notes[0].text == "1 of the 61 images of domain bright are left out"
    text = "10 classes: the largest label is 9, and no image has label 3, 4, 5, 6, 7, and 1 more"
    assert opened.notes[2] == Note(codes[2], text, "", "correct the list if a label is wrong", "warning")

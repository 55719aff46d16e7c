"""A source model is trained with all that its settings name, and notes say what is left out or looks wrong."""

from PIL import Image

from tests.support.domains_on_disk import training
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
    network = {"arch": "timm/test_resnet", "arch_option": ["in_chans=1"], "norm_mean": [0.5], "norm_std": [0.5]}
    settings = training(copied, None, **network, method="mdd", image_size=None, epochs=3)
    opened = open_pretraining(settings, find(), read, {"image_size": 24, "epochs": 5})
    assert (opened.settings.image_size, opened.settings.epochs) == (24, 3)
    assert opened.probe.shape == (8, 1, 24, 24)
    assert [*opened.target.classes] == [*"0123456789"]
    for domain, count in ((opened.source, 61), (opened.target, 48)):
        assert (len(domain), len(domain.labels), domain.reader.loader) == (count, count, f"{__name__}:read")
    text = "10 classes: the largest label is 9, and no image has label 3, 4, 5, 6, 7, and 1 more"
    note = Note("number-of-classes", text, "", "correct the list if a label is wrong", "warning")
    assert opened.notes == (note,)

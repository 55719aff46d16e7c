"""A run does not depend on how its images are loaded, from a cache or by how many processes."""

from tests.end_to_end.killable import differences, weights
from tllib_ancon.cli.main import main
from tllib_ancon.data import loading

CROPS = ["--train-resizing", "default", "--image-size", "14", "-b", "8"]
SIZES = ["--train-resizing", "res.", "--val-resizing", "res.", "--resize-size", "16", "--no-hflip"]
SHORT = ["--epochs", "2", "-b", "16", "-j", "0", "--quiet"]


def test_a_run_depends_on_neither_cache_nor_workers(adapt, tmp_path, monkeypatch):
    """An adaptation has as many workers as it was told, for all its loaders."""
    started = []
    loader = loading.DataLoader

    def start(*data, **settings):
        started.append(settings["num_workers"])
        return loader(*data, **settings)

    monkeypatch.setattr(loading, "DataLoader", start)
    assert main(adapt("plain", *CROPS)) == 0
    assert main(adapt("cached", *CROPS, "--cache", str(tmp_path / "cache"), "-j", "2")) == 0
    assert main(adapt("another seed", *CROPS, "--seed", "8")) == 0
    assert started == [2]
    plain = weights(tmp_path / "plain")
    assert differences(plain, weights(tmp_path / "cached")) == []
    assert differences(plain, weights(tmp_path / "another seed")) != []


def test_class_folders_of_another_dataset_are_refused(source_checkpoint, tmp_path, refused):
    for name in ("mug", "bike", "car"):
        (tmp_path / "other" / name).mkdir(parents=True)
        (tmp_path / "other" / name / "a.png").touch()
    start = ["--checkpoint", str(source_checkpoint), *SIZES, *SHORT, "--log", str(tmp_path / "run")]
    shown = refused(["adapt", str(tmp_path), "-d", "ImageFolder", "-t", "other", *start])
    assert "'bike' first: bike, car, mug instead of red, green, blue" in shown

"""A run does not depend on how its images are loaded, from a cache or by how many processes."""

from tests.domains_on_disk import small_arguments
from tests.end_to_end.killable import differences, weights
from tests.json_files import read_json
from tllib_ancon.cli.main import main

CROPS = ["--train-resizing", "default", "--image-size", "14", "-b", "8"]


def test_a_run_depends_on_neither_cache_nor_workers(adapt, tmp_path):
    assert main(adapt("plain", *CROPS)) == 0
    assert main(adapt("cached", *CROPS, "--cache", str(tmp_path / "cache"), "-j", "2")) == 0
    assert main(adapt("another seed", *CROPS, "--seed", "8")) == 0
    plain = weights(tmp_path / "plain")
    assert differences(plain, weights(tmp_path / "cached")) == []
    assert differences(plain, weights(tmp_path / "another seed")) != []


def test_lists_need_no_names_of_classes(copied, adapt, tmp_path, capsys):
    """The largest label counts them for a source model; a target has those of the model, also without labels."""
    (copied / "image_list" / "classes.txt").unlink()
    words = [word for word in small_arguments(copied) if word != "--quiet"]
    assert main(["pretrain", *words, "--epochs", "1", "--log", str(tmp_path / "source")]) == 0
    assert "3 classes: the largest label is 2" in capsys.readouterr().err
    target = copied / "image_list" / "dark.txt"
    target.write_text("".join(f"{line.rsplit(' ', 1)[0]}\n" for line in target.read_text().splitlines()))
    for log, checkpoint in (("numbers", tmp_path / "source"), ("names", None)):
        start = {"checkpoint": checkpoint} if checkpoint else {}
        assert main(adapt(log, root=copied, **start)) == 0
        assert len(read_json(tmp_path / log / "config.json")["inputs"]["classes"]) == 3

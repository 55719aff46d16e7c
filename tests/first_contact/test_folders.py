"""Subfolders are classes only where the model's classes say so, in the order of the model's library."""

import shlex
import unicodedata
from pathlib import Path

import pytest
import timm
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Subset
from torchvision import models
from torchvision.datasets import ImageFolder

import tllib_ancon
from tests.networks import transformer
from tests.refusals import one_line
from tllib_ancon import evaluate
from tllib_ancon.cli.main import main
from tllib_ancon.data.class_folders import labels_by_name
from tllib_ancon.models.class_names import aliases_of, class_names_of

HOW = {"norm_mean": (0.0,) * 3, "norm_std": (1.0,) * 3, "image_size": 8, "workers": 0}
QUICK = {"epochs": 1, "method": "self-training", "no_hflip": True}


class Levels(nn.Module):
    """Class k is the grey level k / (K - 1)."""

    def __init__(self, num_classes):
        super().__init__()
        level = torch.linspace(0, 1, num_classes)
        pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, num_classes)
        self.layers = nn.Sequential(nn.Conv2d(3, 3, 1, groups=3, bias=False), *pooled)
        with torch.no_grad():
            self.layers[0].weight.fill_(1)
            weights = 400 * level[:, None]
            self.layers[3].weight.copy_(weights.repeat(1, 3))
            self.layers[3].bias.copy_(-(level**2) * 600)

    def forward(self, images):
        return self.layers(images)


def levels(num_classes, **attributes):
    model = Levels(num_classes).eval()
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def write(root, folders, num_classes, inside=""):
    """Two images a folder; the folder at place k has the grey level of class k."""
    for label, name in enumerate(folders):
        if name is None:
            continue
        folder = root / name / inside
        folder.mkdir(parents=True)
        level = round(255 * label / (num_classes - 1))
        for number in range(2):
            Image.new("RGB", (8, 8), (level, level, level)).save(folder / f"{number}.png")
    return root


def adapted(model, folder, **settings):
    return tllib_ancon.adapt(model, folder, **{**HOW, **QUICK, **settings})


def classes_of(result):
    """The names of the classes that a result records."""
    return result._recorded["inputs"]["classes"]


def lines(capfd):
    return capfd.readouterr().err


@pytest.mark.parametrize("folders", [["2022", "2023", "2024"], ["2023", "2024"], ["a", "b", "c"]])
def test_subfolders_are_no_classes_of_a_model_without_names(folders, tmp_path, capfd):
    photos = write(tmp_path / "photos", folders, 3, inside="deep/deeper")
    result = adapted(levels(3), photos)
    assert "accuracy" not in result.metrics[0]
    assert classes_of(result) == ["0", "1", "2"]
    said = lines(capfd)
    assert f"its subfolders are not taken as classes ({', '.join(folders)})" in said
    assert "`class_names=FILE`" in said
    assert ("`data=ImageFolder`" in said) == (len(folders) == 3)


def test_the_advice_about_subfolders_leads_on(tmp_path):
    photos = write(tmp_path / "photos", ["a", "b", "c"], 3)
    names = tmp_path / "names.txt"
    names.write_text("a\nb\nc\n")
    for settings in ({"data": "ImageFolder"}, {"labels": True}, {"class_names": str(names)}):
        result = adapted(levels(3), photos, **settings)
        assert result.metrics[0]["accuracy"] == 100
        assert classes_of(result) == ["a", "b", "c"]
    names.write_text("a\nb\n")
    with one_line(r"`class_names` has 2 names, 'a' first, and the model has 3 classes"):
        adapted(levels(3), photos, class_names=str(names))


def test_images_beside_folders_and_hidden_folders(tmp_path, capfd):
    photos = write(tmp_path / "photos", ["pig", "owl", ".thumbs"], 3)
    Image.new("RGB", (8, 8)).save(photos / "first.png")
    result = adapted(levels(2, classes=["pig", "owl"]), photos)
    assert result._recorded["inputs"]["images"]["photos"]["number"] == 5
    assert "accuracy" not in result.metrics[0]
    assert "(owl, pig): images lie beside them" in lines(capfd)


NAMED = {
    "class_names": ["pig", "snowy owl", "dog", "cat"],
    "classes": ("pig", "snowy owl", "dog", "cat"),
    "class_to_idx": {"cat": 3, "dog": 2, "snowy owl": 1, "pig": 0},
    "idx_to_class": {0: "pig", 1: "snowy owl", 2: "dog", 3: "cat"},
    "names": {0: "pig", 1: "snowy owl", 2: "dog", 3: "cat"},
    "CLASSES": ("pig", "snowy owl", "dog", "cat"),
    "labels": ["pig", "snowy owl", "dog", "cat"],
}


@pytest.mark.parametrize("attribute", NAMED)
def test_names_that_a_model_knows_are_matched(attribute, tmp_path, capfd):
    photos = write(tmp_path / "photos", ["Pig", "snowy_owl", "dog", "cat"], 4, inside="session 1")
    result = adapted(levels(4, **{attribute: NAMED[attribute]}), photos)
    assert result.metrics[0]["accuracy"] == 100
    assert classes_of(result) == ["pig", "snowy owl", "dog", "cat"]
    assert "classes" not in lines(capfd)


def test_a_partial_target_has_labels_and_one_of_other_classes_none(tmp_path, capfd):
    model = levels(4, class_names=NAMED["class_names"])
    some = write(tmp_path / "some", [None, "snowy owl", None, "cat"], 4)
    assert adapted(model, some).metrics[0]["accuracy"] == 100
    assert "classes" not in lines(capfd)
    for settings, data in (({}, "others"), ({"data": "Folder"}, "again")):
        others = write(tmp_path / data, ["pig", "snowy owl", "kitten"], 4)
        assert "accuracy" not in adapted(model, others, **settings).metrics[0]
        assert ("'kitten' is no class of the model; move such folders out" in lines(capfd)) == (not settings)
    with one_line(r"the model has 4 classes, the dataset has 3; .*`data=Folder`"):
        adapted(model, others, data="ImageFolder")
    (others / "kitten").rename(tmp_path / "kitten")  # the advice
    assert adapted(model, others).metrics[0]["accuracy"] == 100


def test_transformers_and_imagenet_names():
    names = ["pig", "owl", "dog"]
    named = transformer("ResNet", num_labels=3, id2label=dict(enumerate(names)))
    assert class_names_of(nn.Sequential(nn.Identity(), named), 3) == names
    assert class_names_of(transformer("ResNet"), 3) is None
    network = timm.create_model("test_resnet", num_classes=1000)
    aliases = aliases_of(network, 1000, class_names_of(network, 1000))
    folders = ["n01440764", "goldfish", "great_white_shark", "n15075141", "crane"]
    assert labels_by_name(folders, aliases) == {"n01440764": 0, "goldfish": 1, "great_white_shark": 2, "n15075141": 999}
    labelled = timm.create_model("test_resnet", num_classes=2, pretrained_cfg_overlay={"label_names": ["b", "a"]})
    assert class_names_of(labelled, 2) == ["b", "a"]
    assert class_names_of(network, 1000) is None


def test_numbered_class_folders_are_in_the_order_of_their_numbers(tmp_path, capfd):
    photos = write(tmp_path / "photos", map(str, range(12)), 12)
    for settings in ({}, {"data": "ImageFolder"}):
        result = adapted(levels(12), photos, **settings)
        assert result.metrics[0]["accuracy"] == 100
        said = lines(capfd)
        assert "label 2 is '2'; the order is that of their numbers, as timm's (the other has '10')" in said
        assert "`class_names=FILE`" in said


def recorded_order(model, folder):
    return classes_of(adapted(model, folder, data="ImageFolder", image_size=32, method="adabn"))


def test_the_order_of_class_folders_is_that_of_the_models_library(tmp_path, capfd):
    torch.manual_seed(0)
    natural = ["alpha", "Class2", "class10"]
    photos = write(tmp_path / "photos", natural, 3)
    assert recorded_order(timm.create_model("test_resnet", num_classes=3), photos) == natural
    assert "as timm's (the other has 'Class2')" in lines(capfd)
    assert recorded_order(models.shufflenet_v2_x0_5(num_classes=3), photos) == sorted(natural)
    assert "as torchvision's (the other has 'alpha')" in lines(capfd)


def test_the_advice_has_the_order_that_the_folders_get(tmp_path, capfd):
    folders = [f"class_{label}" for label in range(12)]
    photos = write(tmp_path / "photos", folders, 12)
    adapted(timm.create_model("test_resnet", num_classes=12), photos, image_size=32, method="adabn")
    assert "as its classes, in the order class_0, class_1, class_2, class_3, class_4, and " in lines(capfd)
    adapted(levels(12), photos)
    assert "as its classes, in the order class_0, class_1, class_10, class_11, class_2, and " in lines(capfd)


def test_the_command_line_reads_folders_in_the_same_way(tmp_path, monkeypatch, capfd):
    torch.manual_seed(0)
    checkpoint = tmp_path / "model.pth"
    photos = write(tmp_path / "photos", ["2023", "2024"], 3, inside="may")
    network = timm.create_model("test_resnet", num_classes=3).state_dict()
    torch.save({"state_dict": network}, checkpoint)
    start = ["-a", "timm/test_resnet", "--checkpoint", str(checkpoint), "--image-size", "32"]
    words = ["adapt", str(photos), *start, "--epochs", "1", "--log"]
    assert main([*words, str(tmp_path / "my run")]) == 0
    advised = next(line for line in capfd.readouterr().out.splitlines() if line.startswith("next: "))
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(advised.removeprefix("next: tllib-ancon "))) == 0
    assert main([*words, str(tmp_path / "run")]) == 0
    assert "--class-names FILE gives the names of the model's classes" in lines(capfd)
    assert main([*words, str(tmp_path / "again"), "-d", "Folder"]) == 0
    assert "subfolders" not in lines(capfd)
    assert main(["evaluate", str(photos), "--checkpoint", str(tmp_path / "run")]) == 0
    assert "accuracy" not in capfd.readouterr().out
    torch.save({"state_dict": network, "class_to_idx": {"2024": 0, "may": 1, "2023": 2}}, checkpoint)
    assert main([*words, str(tmp_path / "named")]) == 0
    shown = capfd.readouterr()
    assert "accuracy" in shown.out
    assert "subfolders" not in shown.err
    assert main(["evaluate", str(photos), "--checkpoint", str(tmp_path / "named")]) == 0
    assert "accuracy" in capfd.readouterr().out
    assert main(["predict", str(photos), "--checkpoint", str(tmp_path / "named"), "--out", "-"]) == 0
    _, *rows = capfd.readouterr().out.split()
    assert {row.split(",")[1] for row in rows} <= {"2024", "may", "2023"}


@pytest.mark.parametrize("folders", [["0", "1"], ["photos"]])
def test_a_run_directory_among_the_images_is_no_part_of_them(folders, tmp_path, capfd):
    write(tmp_path, folders, 2)
    first = adapted(levels(2), tmp_path, log=tmp_path / "runs" / "adapted", quiet=False)
    figures = tmp_path / "runs" / "adapted" / "visualize"
    figures.mkdir(exist_ok=True)
    Image.new("RGB", (8, 8)).save(figures / "epochs.png")  # as the command does
    capfd.readouterr()
    again = adapted(levels(2), tmp_path, log=tmp_path / "runs" / "adapted", quiet=False)
    assert "holds this run already" in lines(capfd)
    assert again.metrics == first.metrics
    predictions = tllib_ancon.predict(first.model, tmp_path, **HOW)
    assert len(predictions.paths) == 2 * len(folders)


def test_parts_of_a_dataset_get_advice_about_parts_and_it_leads_on(tmp_path, capfd):
    for part in ("train", "Test"):
        write(tmp_path / part, ["0", "1", "2"], 3)
    assert "accuracy" not in adapted(levels(3), tmp_path).metrics[0]
    said = lines(capfd)
    assert f"images without labels, of all its parts (Test, train); give {tmp_path}/Test for the images of one" in said
    assert "class_names" not in said
    assert adapted(levels(3), tmp_path / "Test").metrics[0]["accuracy"] == 100


@pytest.mark.parametrize("command", ["adapt", "predict", "check"])
def test_paths_that_a_shell_expands_get_a_way_that_works(command, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "photos", ["a"], 2)
    torch.save(timm.create_model("test_resnet", num_classes=2).state_dict(), "model.pth")
    rest = ["--checkpoint", "model.pth", "-a", "timm/test_resnet", "--image-size", "32"]
    assert main([command, "photos/a/0.png", "photos/a/1.png", *rest]) == 2
    said = lines(capfd)
    assert f"tllib-ancon {command} takes one path, and photos/a/1.png is another; give the folder of the images" in said
    Path("list.txt").write_text("photos/a/0.png\nphotos/a/1.png\n")
    assert main(["predict", "list.txt", *rest, "--out", "p.csv"]) == 0
    assert "2 images; predictions in p.csv" in lines(capfd)


def test_names_whose_accents_are_coded_in_another_way_are_matched(tmp_path):
    """As macOS writes names of files."""
    names = [unicodedata.normalize("NFD", name) for name in ("Bär", "Öl", "Möwe")]
    photos = write(tmp_path, names, 3)
    assert adapted(levels(3, class_names=["Bär", "Öl", "Möwe"]), photos).metrics[0]["accuracy"] == 100


NAME_FILES = {
    "names.txt": "pig\r\ncat\r\nsnowy owl\r\n",
    "numbered.txt": "0 pig\n1 cat\n2 snowy owl\n",
    "from_one.txt": "1: pig\n2: cat\n3: snowy owl\n",
    "names.csv": "0,pig\n1,cat\n2,snowy owl\n",
    "list.json": '["pig", "cat", "snowy owl"]',
    "labels.json": '{"0": "pig", "1": "cat", "2": "snowy owl"}',
    "names.json": '{"cat": 1, "pig": 0, "snowy owl": 2}',
    "a list": "",
}


@pytest.mark.parametrize("name", NAME_FILES)
def test_names_of_classes_come_from_usual_files_or_a_list(name, tmp_path):
    photos = write(tmp_path / "photos", ["pig", "cat", "snowy owl"], 3)
    class_names = ["pig", "cat", "snowy owl"]
    if NAME_FILES[name]:
        (tmp_path / name).write_text(NAME_FILES[name])
        class_names = tmp_path / name
    result = adapted(levels(3), photos, class_names=class_names)
    assert result.metrics[0]["accuracy"] == 100
    assert classes_of(result) == ["pig", "cat", "snowy owl"]


@pytest.mark.parametrize("content", ["2 ants\n3 bees\n4 ants of fire\n", "0 stars\n1 stars\n2 stars\n"])
def test_numbers_that_belong_to_the_names_stay(content, tmp_path):
    (tmp_path / "names.txt").write_text(content)
    photos = write(tmp_path / "photos", content.splitlines(), 3)
    assert adapted(levels(3), photos, class_names=tmp_path / "names.txt").metrics[0]["accuracy"] == 100


@pytest.mark.parametrize("content", ["a,b,c\n", "names:\n 0: a\n 1: b\n 2: c\n"])
def test_names_in_another_form_never_name_predictions(content, tmp_path, capfd):
    photos = write(tmp_path / "photos", ["a", "b", "c"], 3)
    (tmp_path / "names").write_text(content)
    torch.save(timm.create_model("test_resnet", num_classes=3).state_dict(), tmp_path / "model.pth")
    words = ["-a", "timm/test_resnet", "--checkpoint", str(tmp_path / "model.pth"), "--image-size", "32"]
    out = tmp_path / "out.csv"
    names = ["--class-names", str(tmp_path / "names")]
    assert main(["predict", str(photos), *words, *names, "--out", str(out)]) == 2
    assert "--class-names has " in lines(capfd)
    assert not out.exists()


def test_names_that_are_given_twice_are_refused(tmp_path):
    photos = write(tmp_path / "photos", ["pig", "cat"], 2)
    with one_line("`class_names` has a name twice"):
        adapted(levels(2), photos, class_names=["pig", "pig"])
    (tmp_path / "names.json").write_text('{"0": ["n01440764", "tench"]}')
    with one_line(r"names\.json: expected a distinct name for each class"):
        adapted(levels(2), photos, class_names=tmp_path / "names.json")


@pytest.mark.parametrize("log", [".", "cat"])
@pytest.mark.parametrize("door", [lambda folder: folder, lambda folder: sorted(map(str, folder.glob("*/*.png")))])
def test_a_run_directory_is_no_folder_of_the_images(log, door, tmp_path):
    """A later call would leave its images out, or take the picture of its scores for one."""
    photos = write(tmp_path / "photos", ["cat", "dog", "owl"], 3)
    if log == "." and door(photos) != photos:
        Image.new("RGB", (8, 8)).save(photos / "top.png")
    before = sorted(photos.rglob("*"))
    images = door(photos) if log != "." or door(photos) == photos else [str(photos / "top.png")]
    with one_line("`log=.*` holds images .* choose another `log`, such as a new folder"):
        tllib_ancon.adapt(levels(3), images, log=photos / log, **HOW, **QUICK)
    assert sorted(photos.rglob("*")) == before


def test_a_run_beside_or_above_the_images_is_fine(tmp_path):
    photos = write(tmp_path / "photos", ["cat", "dog", "owl"], 3)
    for log in (photos / "run", tmp_path):
        tllib_ancon.adapt(levels(3), photos, log=log, **HOW, **QUICK)
        assert len(tllib_ancon.predict(levels(3), photos, **HOW).labels) == 6


def test_numbered_folders_that_give_labels_are_told(tmp_path, capfd):
    """Patients 0, 1 and 2 are no classes."""
    photos = write(tmp_path / "photos", ["0", "1", "2"], 3)
    assert "accuracy" in tllib_ancon.adapt(levels(3), photos, **HOW, **QUICK).metrics[0]
    line = "subfolders 0 to 2 are taken as the classes of these numbers, and give labels; `data=Folder` reads"
    assert line in capfd.readouterr().err
    result = tllib_ancon.adapt(levels(3), photos, data="Folder", **HOW, **QUICK)
    assert "accuracy" not in result.metrics[0]
    assert "subfolders" not in capfd.readouterr().err


def test_classes_below_other_folders_are_told_and_the_advice_leads_on(tmp_path, capfd):
    """PATIENT/CLASS: a patient need not have every class."""
    names = {"class_names": ("cat", "dog", "owl")}
    write(tmp_path, ["mary/cat", "john/dog", "john/owl"], 3)
    tllib_ancon.adapt(levels(3), tmp_path, **names, **HOW, **QUICK)
    shown = capfd.readouterr().err
    assert "they hold folders with the names of the model's classes" in shown
    assert "`data=ImageFolder` and each of them as `target` (john mary) give labels" in shown
    labelled = {"data": "ImageFolder", "target": ("john", "mary")}
    result = tllib_ancon.adapt(levels(3), tmp_path, **labelled, **names, **HOW, **QUICK)
    assert result.metrics[0]["accuracy"] == 100


@pytest.mark.parametrize("part", [slice(None), slice(1, None)])
def test_targets_of_an_image_folder_are_matched_to_the_names_of_the_model(part, tmp_path, capfd):
    names = ["owl", "cat", "pig", "dog"]
    dataset = ImageFolder(write(tmp_path / "photos", names, 4))
    indices = [*range(len(dataset))][part]
    model = levels(4, class_names=names)
    labels = [dataset.targets[index] for index in indices]
    assert evaluate(model, Subset(dataset, indices), labels=labels, **HOW).accuracy == 100
    assert "have another order than the model's; they are matched by their names" in lines(capfd)
    assert evaluate(levels(4, class_names=dataset.classes), dataset, labels=dataset.targets, **HOW).accuracy < 100
    assert "another order" not in lines(capfd)

"""``run.sh`` makes commands of this package alone, and its page shows what they made."""

from pathlib import Path

from benchmarks.gpu import summary
from tests.benchmarks import recorded
from tests.support import outcomes
from tests.support.layouts import write_list
from tllib_ancon.cli.main import main, parse

SHORT = [
    "first",
    "again",
    "float32",
    "fp16",
    "bf16",
    "everything",
]
TINY = {
    "NETWORK": "-a small_cnn --scratch --train-resizing res. --val-resizing res. --resize-size 16 --bottleneck-dim 8",
    "SHORT": "--epochs 1 -b 8",
    "WORKERS": "0",
}


def test_its_commands_are_commands_of_this_package_and_its_page_is_of_what_they_made(tmp_path, monkeypatch, capsys):
    for name in ("amazon", "dslr", "webcam"):
        write_list(tmp_path / "data" / "office31", name, images=40, classes=31)
    (tmp_path / "data" / "weights.safetensors").touch()
    made = recorded.commands("gpu/run.sh", ["data", "out"], tmp_path, **TINY)
    parsed = [(words[1], parse(words[1:])) for words in made if words[0] == "tllib-ancon"]
    assert [name for name, _ in parsed] == ["pretrain", *["adapt"] * len(SHORT), "benchmark", "report"]
    assert parsed[0][1].pretrained_weights == "data/weights.safetensors"
    logs = [args.log for name, args in parsed if name == "adapt"]
    assert [Path(log).name for log in logs] == SHORT
    measured = [words for words in made if "benchmarks.speed" in words]
    assert [words[4] for words in measured] == ["step"]
    assert made[-1] == ["python", "-m", "benchmarks.gpu.summary", "out"]

    monkeypatch.chdir(tmp_path)
    start, first, again, compared = made[len(measured) : len(measured) + 4]
    own = start.index("--pretrained-weights")
    del start[own : own + 2]
    for words in (start, first, again):
        assert main([*words[1:], "--quiet"]) == 0
    assert compared[:3] == ["python", "-m", "tests.support.outcomes"]
    assert outcomes.main(compared[3:]) == 0
    summary.main(made[-1][3:])
    page = capsys.readouterr().out
    assert "same bit for bit" in page
    assert "| bit-for-bit | done |" in page
    assert page.count("| again |") == 2

"""``run.sh`` makes commands of this package alone, and its runs can be compared to the last bit."""

from pathlib import Path

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


def test_its_commands_are_commands_of_this_package(tmp_path, monkeypatch, capsys):
    for name in ("amazon", "dslr", "webcam"):
        write_list(tmp_path / "data" / "office31", name, images=40, classes=31)
    (tmp_path / "data" / "weights.safetensors").touch()
    made = recorded.commands("gpu/run.sh", ["data", "out"], tmp_path, **TINY)
    parsed = [(words[1], parse(words[1:])) for words in made if words[0] == "tllib-ancon"]
    assert [name for name, _ in parsed] == ["pretrain", *["adapt"] * len(SHORT), "benchmark", "report"]
    assert parsed[0][1].pretrained_weights == "data/weights.safetensors"
    logs = [args.log for name, args in parsed if name == "adapt"]
    assert [Path(log).name for log in logs] == SHORT
    assert made[0] == ["python", "-m", "benchmarks.speed", "--out", "out/speed.csv"]

    monkeypatch.chdir(tmp_path)
    start, first, again, compared = made[1:5]
    own = start.index("--pretrained-weights")
    del start[own : own + 2]
    for words in (start, first, again):
        assert main([*words[1:], "--quiet"]) == 0
    assert compared[:3] == ["python", "-m", "tests.support.outcomes"]
    assert outcomes.main(compared[3:]) == 0
    assert "same bit for bit" in capsys.readouterr().out

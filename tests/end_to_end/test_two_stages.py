"""``run``: a source model and its adaptation by one command."""

import json
from pathlib import Path

import pytest
import torch

from tests.domains_on_disk import small_arguments
from tllib_ancon import AdaptConfig, PretrainConfig
from tllib_ancon.cli.main import main, parse
from tllib_ancon.training.adapting import Adaptation
from tllib_ancon.training.pretrain import SourceOnly


def run_arguments(root: Path, log: Path, method: str, *more: str) -> list[str]:
    """A few steps of both stages."""
    length = ["--epochs", "2", "-i", "3"] if method != "erm" else ["--epochs", "2"]
    second = ["--adapt-epochs", "2", "--adapt-batch-size", "16"]
    command = ["run", *small_arguments(root), "-t", "dark", "--pretrain", method]
    return [*command, *length, *second, "--log", str(log), *more]


@pytest.mark.parametrize("method", ["erm", "cdan"])
def test_run_makes_the_runs_of_its_two_commands(domains: Path, tmp_path: Path, method: str) -> None:
    more = ["--method", "self-training", "--lr", "0.02", "--adapt-lr", "0.005", "--adapt-hold-out", "0.2"]
    assert main(run_arguments(domains, tmp_path / "both", method, *more)) == 0
    result = json.loads((tmp_path / "both" / "result.json").read_text())
    assert (result["pretrain"]["method"], result["method"]) == (method, "self-training")
    length = ["--epochs", "2"] + (["-i", "3", "-t", "dark"] if method != "erm" else ["-t", "dark"])
    first, both = tmp_path / "first", tmp_path / "both"
    length += ["--method", method, "--lr", "0.02", "--log", str(first)]
    assert main(["pretrain", *small_arguments(domains), *length]) == 0
    start = first / "checkpoints" / ("best.pth" if method == "erm" else "latest.pth")
    words = [word for word in small_arguments(domains) if word != "--scratch"]
    second = ["-t", "dark", "--checkpoint", str(start), "--epochs", "2", "--lr", "0.005", "--hold-out", "0.2"]
    assert main(["adapt", *words, *second, "--method", "self-training", "--log", str(tmp_path / "second")]) == 0
    for stage, alone in (("pretrain", first), ("adapt", tmp_path / "second")):
        together, apart = (
            torch.load(run / "checkpoints" / "latest.pth", weights_only=True) for run in (both / stage, alone)
        )
        assert all(torch.equal(together[name], apart[name]) for name in apart)
        recorded = (json.loads((run / "config.json").read_text()) for run in (both / stage, alone))
        here, there = ({k: v for k, v in config.items() if k not in ("log", "checkpoint")} for config in recorded)
        assert here == there


def test_in_python_a_second_stage_takes_what_both_share_from_the_first() -> None:
    first = PretrainConfig(root="r", data="ImageList", source=["a"], target=["b"], seed=3, lr=0.5, arch="resnet50")
    second = AdaptConfig(start=first, method="aad", workers=0, log="both")
    assert (second.root, second.data, second.target, second.seed, second.workers) == ("r", "ImageList", ("b",), 3, 0)
    assert (second.settle().lr, second.arch, second.log) == (0.01, None, "both")
    words = ["r", "-d", "ImageList", "-s", "a", "-t", "b", "-a", "resnet50", "-j", "0", "--log", "both"]
    args = parse(["run", *words, "--seed", "3", "--lr", "0.5", "--method", "aad"])
    assert args.command.configured(args) == second.replace(start=first.replace(workers=0, log="both"))


def test_run_goes_on_where_it_was_cut_off(domains: Path, tmp_path: Path, monkeypatch) -> None:
    """After the first stage, and after the whole."""
    arguments = run_arguments(domains, tmp_path, "erm")
    with monkeypatch.context() as patch:
        patch.setattr(Adaptation, "_train_epoch", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main(arguments) != 0
    assert not (tmp_path / "result.json").exists()
    monkeypatch.setattr(SourceOnly, "_train_epoch", lambda *_: pytest.fail("the first stage was made again"))
    assert main(arguments) == 0
    first = (tmp_path / "result.json").read_text()
    monkeypatch.setattr(Adaptation, "_train_epoch", lambda *_: pytest.fail("the second stage was made again"))
    assert main(arguments) == 0
    assert (tmp_path / "result.json").read_text() == first


def test_run_refuses_the_directory_of_another_command(domains, source_checkpoint, refused) -> None:
    log = source_checkpoint.parent.parent
    before = {path: path.read_bytes() for path in log.rglob("*") if path.is_file()}
    for overwrite in ([], ["--overwrite"]):
        message = refused([*run_arguments(domains, log, "erm"), *overwrite])
        assert "holds config.json and checkpoints of a run of another command" in message
        assert {path: path.read_bytes() for path in log.rglob("*") if path.is_file()} == before

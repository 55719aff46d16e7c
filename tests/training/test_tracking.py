from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.domains_on_disk import small_arguments, write_domains
from tllib_ancon.cli.main import main
from tllib_ancon.errors import UserError
from tllib_ancon.training import tracking
from tllib_ancon.training.adaptation import FirstLabels


@pytest.fixture(scope="module")
def domains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_domains(tmp_path_factory.mktemp("domains"))


def adapted(domains: Path, folder: Path, *more: str) -> int:
    words = small_arguments(domains)
    if not (folder / "source").exists():
        assert main(["pretrain", *words, "--epochs", "1", "--log", str(folder / "source")]) == 0
    start = ["-t", "dark", "--checkpoint", str(folder / "source"), "--epochs", "2", "--log", str(folder / "run")]
    return main(["adapt", *words, *start, *more])


def test_tensorboard_has_the_numbers_of_every_epoch(domains: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install '.[tracking]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert adapted(domains, tmp_path, "--track", "tensorboard") == 0
    (file,) = (tmp_path / "run" / "track" / "run").glob("events*")
    events = EventAccumulator(str(file.parent))
    events.Reload()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for name in ("infomax", "changed", "marginal_entropy", "accuracy"):
        logged = {event.step: event.value for event in events.Scalars(name)}
        assert logged == pytest.approx({line["epoch"]: line[name] for line in lines}, rel=1e-5)
    assert {"votes", "threshold", "loss"} <= set(events.Tags()["scalars"])


def test_a_tracker_that_fails_does_not_end_the_run(domains: Path, tmp_path: Path, monkeypatch) -> None:
    import accelerate.tracking

    class Broken:
        def __init__(self, **options: object):
            pass

        def store_init_configuration(self, values: object) -> None:
            pass

        def log(self, values: object, step: int) -> None:
            raise ConnectionError("no network")

    monkeypatch.setitem(accelerate.tracking.LOGGER_TYPE_TO_CLASS, "wandb", Broken)
    monkeypatch.setattr(tracking, "find_spec", lambda name: True)
    with pytest.warns(UserWarning, match="wandb tracks no longer: no network") as warned:
        assert adapted(domains, tmp_path, "--track", "wandb") == 0
    assert len([one for one in warned if "tracks" in str(one.message)]) == 1
    assert (tmp_path / "run" / "result.json").is_file()


def test_a_tracker_that_is_not_installed(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs the package mlflow; install it: pip install 'tllib-ancon\[tracking\]'"):
        tracking.Tracker("mlflow", tmp_path, {})


def test_the_share_of_labels_that_changed_outlives_a_cut() -> None:
    first = FirstLabels(4)
    assert first.changed(torch.eye(4)) == 0
    again = FirstLabels(4)
    again.load_state_dict(first.state_dict())
    assert again.changed(torch.eye(4)[[0, 1, 3, 2]]) == 0.5

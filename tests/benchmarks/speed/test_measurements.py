from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.speed import (
    augmentation,
    epochs,
    images,
    peak,
    predictions,
    processes,
    scaling,
    search,
    step,
    votes,
    writes,
)
from benchmarks.speed.__main__ import line, main
from benchmarks.speed.timing import Row
from benchmarks.speed.usual_loop import UsualLoop
from tllib_ancon.self_training import AnchoredConfidence
from tllib_ancon.self_training.votes import DenseVotes, SparseVotes


@pytest.mark.parametrize("method", ["self-training", "ancon"])
def test_a_step_in_parts_learns_what_the_whole_step_learns(method: str) -> None:
    whole, parts = (step.TrainingStep(method, "small_cnn", 16, torch.device("cpu")) for _ in range(2))
    start = [parameter.clone() for parameter in parts.model.parameters()]
    for _ in range(3):
        whole()
        parts.in_parts()
    changed = [not torch.equal(*pair) for pair in zip(start, parts.model.parameters(), strict=True)]
    assert any(changed)
    for ours, theirs in zip(parts.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert len(parts.own_seconds) == 3


def test_what_ancon_adds_is_a_part_of_its_step() -> None:
    plain, added, judged, whole = step.measure(rounds=6)
    assert 0 < added.value < plain.value
    assert judged.value == pytest.approx(1 + added.value / plain.value)
    assert whole.unit == "x"


def test_random_votes_are_the_same_for_both_stores() -> None:
    sparse, dense = SparseVotes(50, 300), DenseVotes(50, 300)
    for store in (sparse, dense):
        votes.cast_votes(store, epochs=3)
    assert torch.equal(sparse.read(torch.arange(50)), dense.read(torch.arange(50)))
    assert 50 < dense.counts.sum() < 150
    assert (dense.counts > 0).sum(1).max() > 1


def test_memory_counts_the_hosts_part() -> None:
    assert votes.megabytes(SparseVotes(1000, 500)) == pytest.approx(1000 * (4 * (2 + 4) + 2) / 1e6)


def test_the_usual_search_is_what_it_is_compared_with() -> None:
    bank = search.random_bank(200, 16)
    indices = torch.arange(0, 200, 7)
    exact = scaling.ExactSearch(200, 16, search.NEIGHBORS, search.NEIGHBORS)(indices, bank)
    for ours, theirs in zip(exact, search.usual_search(indices, bank), strict=True):
        assert torch.equal(ours, theirs)


def test_allocations_are_the_new_tensors_alone() -> None:
    given = torch.zeros(10)
    with scaling._Allocations() as allocations:
        made = given + 1
        made.add_(1)
        made.view(2, 5)
        given.topk(2)
    assert allocations.bytes == 40 + 2 * (4 + 8)


def test_images_from_the_cache_are_the_toolkits() -> None:
    rows = images.measure(rounds=2, workers=0)
    assert all(row.value > 0 for row in rows)
    assert [row.value for row in rows if row.unit == "%"] == [100]
    assert sum("--device-augmentation" in row.name for row in rows) == 2


SCENE = epochs.Scene("small CNN", "small_cnn", 16, 24, 8)


def test_the_usual_loop_learns_and_counts_the_votes_that_ancon_counts(tmp_path: Path) -> None:
    domain = images.draw_domain(tmp_path, 24)
    loop = UsualLoop(SCENE.model(), domain, tmp_path, SCENE.transforms, batch_size=8, workers=0)
    ancon = AnchoredConfidence(24, epochs.NUM_CLASSES)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        indices, logits = torch.randperm(24, generator=generator)[:8], torch.randn(8, epochs.NUM_CLASSES)
        torch.testing.assert_close(loop.targets(indices, logits), ancon(indices, logits))
    start = [parameter.clone() for parameter in loop.model.parameters()]
    loop()
    assert loop.images == 24
    assert any(not torch.equal(*pair) for pair in zip(start, loop.model.parameters(), strict=True))
    assert loop.votes.sum() > ancon.ensemble.votes(torch.arange(24)).sum()


def test_epochs_are_compared_image_by_image() -> None:
    ways = [epochs.Way("plain"), epochs.Way("fast", True, {"mixed_precision": "bf16"}, {"at_least": 3})]
    usual, plain, fast = epochs.compare(SCENE, ways, rounds=1, workers=0)
    assert (usual.unit, plain.unit, plain.at_least, fast.at_least) == ("images/s", "x", None, 3)
    assert all(row.value > 0 for row in (usual, plain, fast))


def test_epochs_are_written_in_each_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "EPOCHS", 2)
    seconds, meanwhile, never = writes.compare(SCENE, tmp_path, rounds=1, workers=0)
    assert (seconds.unit, meanwhile.unit, never.unit) == ("s", "x", "x")
    kept = [len(path.read_text().splitlines()) for path in tmp_path.rglob("metrics.jsonl")]
    assert kept == [4, 4]  # a round for warming up


def test_what_waits_keeps_files_of_the_size_of_a_networks() -> None:
    model = writes.Beside("", "", 32, 256, 32).model()
    assert sum(tensor.nbytes for tensor in model.state_dict().values()) > 60e6
    assert sum(parameter.numel() for parameter in model.parameters()) < 1e6


def test_predict_says_what_the_usual_loop_says(tmp_path: Path) -> None:
    usual, faster, difference = predictions.compare("test_resnet", images.draw_domain(tmp_path, 5), rounds=1, workers=0)
    assert (usual.unit, faster.unit, faster.at_least) == ("images/s", "x", 1.5)
    assert difference.met


def test_operations_are_those_of_the_arithmetic() -> None:
    product = peak.Product(64, torch.device("cpu"))
    assert peak.operations(product) == 2 * 64**3
    step_in_bf16 = peak.MixedStep("ancon", "small_cnn", 16, torch.device("cpu"))
    assert step_in_bf16._outputs()[0].dtype == torch.bfloat16
    assert peak.operations(step_in_bf16) > 2 * peak.operations(step_in_bf16._outputs)


@pytest.mark.parametrize(
    ("interval", "shown"),
    [(None, "≤ 1.02  met"), ((1.0, 1.01), "1 – 1.01  ≤ 1.02  met"), ((1.0, 1.05), "1 – 1.05  ≤ 1.02  undecided")],
)
def test_a_line_says_whether_the_claim_holds(interval: tuple[float, float] | None, shown: str) -> None:
    row = Row("step", 1.01, 0.9, 1.1, "x", at_most=1.02, interval=interval)
    assert line(row).endswith(shown)
    assert "0.9 – 1.1" in line(row)
    assert line(replace(row, at_most=None)).endswith("1.1" if interval is None else shown.split("  ")[0])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (step, votes, search, images, augmentation, processes, epochs, writes, predictions, peak):
        monkeypatch.setattr(module, "measure", lambda *_, **__: [Row("speed", 2.0, 1.5, 2.5, "x", at_least=3)])
    monkeypatch.setattr(scaling, "VOTE_SIZES", {"N": (50, 60), "K": (300, 400), "B": (4, 8)})
    monkeypatch.setattr(scaling, "SEARCH_SIZES", {"N": (300, 400), "B": (4, 8)})
    monkeypatch.setattr(scaling, "USUAL", {"N": 50, "K": 300, "B": 4})
    monkeypatch.setattr(scaling, "USUAL_SEARCH", {"N": 300, "B": 4})


def test_the_command_prints_a_table_and_writes_it(quick: None, tmp_path: Path, capsys) -> None:
    assert main(["--out", str(tmp_path)]) == 0
    assert "1.5 – 2.5" in (shown := capsys.readouterr().out)
    assert "≥ 3  NOT MET" in shown
    written = json.loads((tmp_path / "speed.json").read_text())
    assert set(written["figures"]) == {
        "step",
        "votes",
        "search",
        "images",
        "augmentation",
        "processes",
        "epochs",
        "writes",
        "predictions",
        "peak",
    }
    assert written["figures"]["votes"][0]["met"] is False
    assert written["machine"]["cores"] >= 1


def test_some_measurements_alone(quick: None, tmp_path: Path, capsys) -> None:
    assert main(["--only", "votes", "peak", "--out", str(tmp_path)]) == 0
    assert set(json.loads((tmp_path / "speed.json").read_text())["figures"]) == {"votes", "peak"}


def test_scaling_draws_curves_and_says_what_more_would_take(quick: None, tmp_path: Path, capsys) -> None:
    assert main(["--scaling", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
    points = json.loads((tmp_path / "scaling.json").read_text())["points"]
    assert len(points) == 2 * (2 + 2 + 2) + 2 * (2 + 2)
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("10^8 images", "46,875,000", "19.7 TB", "NRC's exact search, all steps"))

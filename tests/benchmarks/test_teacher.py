"""The measurements of a teacher: a row for each pair and weight, and their tables."""

import pandas as pd

from benchmarks import teacher
from tests.training.test_teacher import LABELS, NORMALISED, SIDE, Student, pictures


def test_a_row_and_the_tables(tmp_path, capsys, monkeypatch):
    def models_of(cells, pair):
        models = [Student(), Student()]
        state = models[0].state_dict()
        models[1].load_state_dict({name: 1.5 * weight for name, weight in state.items()})
        order = slice(None, None, -1 if pair.student == "D" else 1)
        first, second = models[order]
        return teacher.Models(first, second, pictures(), LABELS, {"image_size": SIDE, **NORMALISED}, 12)

    both_orders = [*teacher.pairs(("office31",))][:2]
    monkeypatch.setattr(teacher, "models_of", models_of)
    monkeypatch.setattr(teacher, "pairs", lambda families: both_orders)
    arguments = [str(tmp_path), str(tmp_path), "--families", "office31"]
    teacher.main([*arguments, "--weights", "chosen", "1"])
    rows = pd.read_csv(tmp_path / "teacher.csv")
    assert len(rows) == 4
    assert (rows["weight"].astype(str) == "1").sum() == 2
    assert rows["chosen_weight"].between(0, 4).all()
    teacher.main(arguments)  # nothing is left to do
    assert len(pd.read_csv(tmp_path / "teacher.csv")) == 4
    teacher.main([*arguments, "--table"])
    table = capsys.readouterr().out
    assert "office31: A ← D (1)" in table
    assert "Worse teachers." in table

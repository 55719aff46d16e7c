"""The certificate's benchmark: a run has a row with the truth beside the verdicts."""

import shutil

from benchmarks.certificate.__main__ import main


def test_a_row_for_each_run_whose_models_differ(kept, source_checkpoint, tmp_path, capsys):
    shutil.copytree(kept, tmp_path / "adapted")
    shutil.copytree(kept, tmp_path / "unmoved")
    shutil.copy(source_checkpoint, tmp_path / "unmoved/checkpoints")
    main(["--runs", str(tmp_path), "--streams", "50"])
    header, _, row = capsys.readouterr().out.splitlines()
    names, cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in (header, row))
    values = dict(zip(names, cells, strict=True))
    assert (values["run"], values["images"]) == ("adapted", "48")
    difference = float(values["true difference, points"])
    assert float(values["worse, %" if difference > 0 else "better, %"]) <= 20
    assert abs(difference) <= 100 * int(values["disagreements"]) / 48

from pathlib import Path

from benchmarks.theory.__main__ import TABLE, main


def test_the_command_writes_the_committed_statements_and_verdicts(tmp_path: Path, capsys) -> None:
    assert main(["--out", str(tmp_path / "theory.md")]) == 0
    written = (tmp_path / "theory.md").read_text()
    assert capsys.readouterr().out == written
    verdicts = [
        [line.split(" | ")[:3] if line.startswith("| ") else line for line in text.splitlines()]
        for text in (written, TABLE.read_text())
    ]
    assert verdicts[0] == verdicts[1]
    assert "What the paper says: 8 of 20 statements hold" in written
    assert "What it does not say: 0 of 5 statements hold" in written
    assert "nan" not in written

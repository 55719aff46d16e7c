"""Help texts name what exists, need nothing heavy and are shown in any encoding; the doors record what they say."""

import io
import subprocess
import sys

import pytest

from tllib_ancon.cli import main as door
from tllib_ancon.cli.main import COMMANDS


def test_the_list_of_commands_needs_nothing_heavy_and_settings_no_torch():
    code = (
        "import sys\nfrom tllib_ancon.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = [name for name in ('torch', 'timm', 'matplotlib', 'pandas', 'pydantic') if name in sys.modules]\n"
        "assert not heavy, heavy\n"
        "from tllib_ancon import AdaptConfig\n"
        "assert AdaptConfig(smoothing=0.5).options == {'smoothing': 0.5} and 'torch' not in sys.modules"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert set(COMMANDS) <= set(shown.split())


@pytest.mark.parametrize("words", [["adapt"], ["script", "cdan.py", "--method", "ancon"]], ids=" ".join)
@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_help_is_shown_in_any_encoding(words, encoding, monkeypatch):
    stdout = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "argv", ["tllib-ancon", *words, "--help-all"])
    with pytest.raises(SystemExit) as end:
        door.command()
    stdout.flush()
    text = stdout.buffer.getvalue().decode(encoding)
    assert end.value.code == 0
    assert text.startswith("usage: tllib-ancon")
    assert r"\u03b2" in text

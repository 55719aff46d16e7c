"""A script runs as python would run it, its failures are told, and the process is as before afterwards."""

import argparse
import importlib
import io
import os
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.refusals import REFUSED, one_line
from tests.support.tllib import loaded_modules, requires_tllib
from tllib_ancon.scripts import running as script
from tllib_ancon.scripts.running import ScriptRun, run_script

SCRIPT = """
import argparse, sys
import utils
{code}
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("-s", "--source", nargs="+")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--log", default="cdan")
    args = parser.parse_args()
    args.class_names = ["added later"]
    main(args)
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a script that imports ``utils`` from its own folder; the working directory is another one."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    def write(code, name="cdan.py"):
        folder = tmp_path / "examples"
        folder.mkdir(exist_ok=True)
        (folder / "utils.py").write_text("WHERE = __file__\n")
        (folder / name).write_text(SCRIPT.format(code=textwrap.dedent(code)))
        return folder / name

    return write


def run(path, *arguments):
    return run_script(path, ["data", *arguments])


def test_a_script_runs_as_python_would_run_it(write, capsys):
    path = write(
        """
        def main(args):
            print(__name__, __file__ == sys.argv[0], sys.path[0], sys.argv[1:], utils.WHERE)
        """
    )
    result = run(path, "-s", "A", "--epochs", "1")
    captured = capsys.readouterr()
    folder = str(path.parent)
    assert captured.out.split(" ", 3)[:3] == ["__main__", "True", folder]
    assert captured.out.endswith(f"['data', '-s', 'A', '--epochs', '1'] {folder}/utils.py\n")
    assert captured.err == f"tllib-ancon: running the Python file {path}\n"
    arguments = argparse.Namespace(root="data", source=["A"], epochs=1, log="cdan")
    assert result == ScriptRun(0, arguments, None, ("added later",))


def test_everything_is_as_before_afterwards(write, capsys, monkeypatch):
    from timm.models.vision_transformer import VisionTransformer

    theirs = object()
    monkeypatch.setitem(sys.modules, "utils", theirs)
    monkeypatch.delenv("MPLBACKEND", raising=False)

    def state():
        patched = argparse.ArgumentParser.parse_args, VisionTransformer.reset_classifier
        return [list(sys.argv), list(sys.path), sys.stdout, sys.stderr, sys.modules["__main__"], *patched]

    before = state()
    path = write(
        """
        import os
        class Logger:
            write, flush = sys.__stdout__.write, sys.__stdout__.flush
        def main(args):
            assert os.environ["MPLBACKEND"] == "Agg"
            sys.path.append("../../..")
            sys.argv.append("more")
            sys.stdout = sys.stderr = Logger()
            raise ValueError("in the middle")
        """
    )
    assert run(path).exit_status == 1
    assert state() == before
    assert sys.modules["utils"] is theirs
    assert "MPLBACKEND" not in os.environ


@pytest.mark.parametrize(("code", "status", "failure"), REFUSED["scripts"])
def test_exit_status(write, capsys, code, status, failure):
    result = run(write(code))
    assert result.exit_status == status
    assert (failure is None) == (result.failure is None)
    assert (failure or "") in (result.failure or "")
    if "Error" in str(result.failure):
        assert "Traceback" in capsys.readouterr().err


def test_what_is_not_run_to_its_end(write, capsys, tmp_path):
    result = run(write("def main(args): pass"), "--epochs", "many")
    assert result.exit_status == 2
    assert result.arguments is None
    assert "invalid int value: 'many'" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        run(write("def main(args): raise KeyboardInterrupt"))
    (tmp_path / "cdan.sh").touch()
    for path in (tmp_path / "cdan.py", tmp_path / "cdan.sh", tmp_path):
        with one_line("not a Python file"):
            run_script(path, [])


@pytest.mark.parametrize(
    "module",
    ["dalib.vision.datasets", pytest.param("tllib.vision.datasets", marks=requires_tllib)],
)
def test_a_failed_download_is_a_failure(write, tmp_path, capsys, monkeypatch, module):
    """The toolkits print a message and exit with status 0."""

    def unreachable(*args, **options):
        raise OSError("no route to host")

    util = importlib.import_module(f"{module}._util")
    monkeypatch.setattr(util, "download_and_extract_archive", unreachable)
    path = write(
        f"""
        def main(args):
            from {module} import Office31
            Office31(args.root, "A", download=True)
        """
    )
    result = run_script(path, [str(tmp_path)])
    assert result.exit_status == 1
    assert result.failure == (
        f"TLLib could not download {tmp_path}/image_list (no route to host); put it there yourself"
    )
    assert result.failure in capsys.readouterr().err


def test_tllib_is_found_in_the_checkout_of_the_script(write, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "is_installed", lambda name: False)
    for name in loaded_modules():
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "tllib").mkdir()
    (tmp_path / "tllib" / "__init__.py").write_text("HERE = True\n")
    path = write(f"def main(args):\n    import tllib\n    assert tllib.__file__.startswith({str(tmp_path)!r})")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not Path(entry, "tllib").exists()])
    result = run(path)
    sys.modules.pop("tllib", None)
    assert result.failure is None


def test_vision_transformers_return_the_class_token(write, monkeypatch):
    """As TLLib's utils.get_model builds them for --no-pool."""
    path = write(
        """
        import timm, torch
        def main(args):
            network = timm.create_model("test_vit")
            network.reset_classifier(0, "")
            print(tuple(network.eval()(torch.zeros(2, 3, 160, 160)).shape), network.num_features)
        """
    )
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    assert run(path).failure is None
    assert out.getvalue() == "(2, 64) 64\n"


def test_spawned_workers_of_a_script(write, capfd):
    """Their dataset is defined in the script, and the script imports something that needs a shim."""
    path = write(
        """
        import torch
        from dalib.vision.models import resnet18
        class Squares(torch.utils.data.Dataset):
            network = resnet18
            def __len__(self): return 4
            def __getitem__(self, index): return index ** 2
        def main(args):
            loader = torch.utils.data.DataLoader(
                Squares(), batch_size=2, num_workers=1, multiprocessing_context="spawn"
            )
            print([batch.tolist() for batch in loader])
        """
    )
    assert run(path).failure is None
    assert capfd.readouterr().out == "[[0, 1], [4, 9]]\n"

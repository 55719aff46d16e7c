"""Commands that are disturbed, on tiny pictures: each method, stage and launcher."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.domains_on_disk import SIDE, write_domains

SCRIPT = """
import argparse, pathlib, shutil, time
parser = argparse.ArgumentParser()
parser.add_argument("root")
for flags in ("-d --data", "-s --source", "-t --target", "-a --arch", "--train-resizing", "--val-resizing", "--log"):
    parser.add_argument(*flags.split())
parser.add_argument("--resize-size", type=int)
args = parser.parse_args()
folder = pathlib.Path(args.log) / "checkpoints"
folder.mkdir(parents=True, exist_ok=True)
time.sleep(0.3)
shutil.copy(pathlib.Path(__file__).with_name("start.pth"), folder / "latest.pth")
"""
PLAN = """
title = "A plan of tiny runs"
dataset = "ImageList"
pairs = ["bright-dark"]
methods = ["self-training", "ancon"]
seeds = [0]

[common]
arch = "small_cnn"
train-resizing = "res."
val-resizing = "res."
resize-size = 16
workers = 0
epochs = 2
batch-size = 8

[source.erm]
scratch = true
bottleneck-dim = 8
"""

EVALUATED = f"--val-resizing res. --resize-size {SIDE}"
PICTURES = f"--train-resizing res. {EVALUATED}"
READ = f"-a small_cnn --bottleneck-dim 8 {PICTURES} -j 0"
TRAIN = f"{READ} --scratch --no-hflip -b 8 --quiet --log {{work}}/run"
PRETRAIN = f"pretrain {{pictures}} -d ImageList -s bright {TRAIN} --epochs 3"
ADAPT = (
    f"adapt {{pictures}} -d ImageList -s bright -t dark --checkpoint {{start}} {TRAIN} --epochs 3 --save-predictions "
    "--method"
)
BY_LAUNCHER = "-m"
COMMANDS = {
    "pretrain, ERM": PRETRAIN,
    "pretrain, CDAN": f"{PRETRAIN} -t dark --method cdan -i 4",
    "pretrain, MDD": f"{PRETRAIN} -t dark --method mdd -i 4",
    "adapt, self-training": f"{ADAPT} self-training",
    "adapt, AnCon": f"{ADAPT} ancon",
    "adapt, AnCon, 2 workers": f"{ADAPT} ancon -j 2",
    "adapt, ELR": f"{ADAPT} elr",
    "adapt, GCE": f"{ADAPT} gce",
    "adapt, NRC+AnCon": f"{ADAPT} nrc+ancon",
    "adapt, SHOT+AnCon": f"{ADAPT} shot+ancon",
    "adapt, AaD": f"{ADAPT} aad",
    "script, two stages": "script {folder}/cdan.py {pictures} -d ImageList -s bright -t dark -a small_cnn "
    f"{PICTURES} --log {{work}}/run --method ancon --epochs 3 --batch-size 8 --quiet",
    "adapt, while a cache is built": f"{ADAPT} ancon --cache {{work}}/cache",
    "predict": f"predict {{pictures}} -d ImageList -t dark --checkpoint {{start}} {READ} -b 4 --out {{work}}/out.csv",
    "benchmark": "benchmark {folder}/plan.toml {pictures} --out {work}/runs",
    "adapt, AnCon, torchrun": f"{BY_LAUNCHER} torch.distributed.run --standalone --nproc-per-node 2 -m -- tllib_ancon "
    f"{ADAPT} ancon",
}
SLOW = {"benchmark", "adapt, AnCon, torchrun"}
"""They start Python processes of their own and are disturbed a fourth as often."""


@dataclass
class Place:
    """Where a campaign keeps its pictures, and what each command writes to: the same folder each time.

    Attributes:
        planted: the bug that commands have here
        writes: the list of what the last command wrote
    """

    folder: Path
    planted: str = ""

    def __post_init__(self) -> None:
        self.pictures = self.folder / "pictures"
        self.start = self.folder / "start.pth"
        self.work = self.folder / "work"
        self.writes = self.folder / "writes"

    def words(self, command: str) -> list[str]:
        """Of a command line with these paths to fill in."""
        paths = {"folder": self.folder, "pictures": self.pictures, "start": self.start, "work": self.work}
        return [word.format(**paths) for word in command.split()]

    def emptied(self) -> Path:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        return self.work

    def write_inputs(self) -> None:
        """A script, a plan, and the two small domains."""
        self.pictures.mkdir(parents=True, exist_ok=True)
        write_domains(self.pictures)
        (self.folder / "cdan.py").write_text(SCRIPT)
        (self.folder / "plan.toml").write_text(PLAN)

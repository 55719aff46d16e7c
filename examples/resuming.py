"""
Resume a run that was cut off
=============================

With ``log`` a run is stored in a directory. The same call resumes it after the last complete epoch. The result is bit
for bit that of an uninterrupted run, on the same machine with the same number of threads.
"""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt

from tllib_ancon import PretrainConfig, pretrain
from tllib_ancon.laboratory.digits import write_demo_domains
from tllib_ancon.runs.directory import RunDirectory

write_demo_domains(Path("digits"))
digits = {"root": "digits", "data": "ImageList", "image_size": 28, "no_hflip": True}
machine = {"workers": 0, "threads": 1, "quiet": True}
network = {"arch": "small_cnn", "scratch": True, "scale": (0.5, 1.0)}
pretrain(PretrainConfig(**digits, **machine, **network, source=("rendered",), epochs=6, log="runs/source"))

# %%
# The same command makes the uninterrupted and the interrupted run.

COMMAND = [*(sys.executable, "-m", "tllib_ancon", "adapt", "digits", "-d", "ImageList", "-t", "handwritten")]
COMMAND += ["--checkpoint", "runs/source", "--no-hflip", "--epochs", "4", "--workers", "0", "--threads", "1", "--quiet"]
subprocess.run([*COMMAND, "--log", "runs/whole", "--overwrite"], check=True)

# %%
# The second run gets SIGTERM when its first epoch is on the disk. It finishes its step and ends.

shutil.rmtree("runs/cut", ignore_errors=True)
cut = RunDirectory("runs/cut")
process = subprocess.Popen([*COMMAND, "--log", "runs/cut"])
while process.poll() is None and not (cut.checkpoints / "best.pth").is_file():
    time.sleep(0.05)
process.send_signal(signal.SIGTERM)
print("exit status", process.wait())
kept = len(cut.metrics())
print(f"{kept} lines of metrics are stored, with the source model's")

# %%
# The same command resumes the run.

subprocess.run([*COMMAND, "--log", "runs/cut"], check=True)
whole = RunDirectory("runs/whole").metrics()
same = [entry["accuracy"] for entry in cut.metrics()] == [entry["accuracy"] for entry in whole]
print("both runs have the same accuracies:", same)

# %%

plt.plot([entry["accuracy"] for entry in whole], color="grey", linewidth=5, alpha=0.4, label="uninterrupted")
plt.plot([entry["accuracy"] for entry in cut.metrics()], marker="o", label="interrupted and resumed")
plt.axvline(kept - 1, linestyle="--", color="#D55E00", label="last epoch before the interruption")
plt.title("The resumed run has the accuracies of the uninterrupted run")
plt.xlabel("epoch")
plt.ylabel("accuracy on the target (%)")
plt.legend()
plt.show()

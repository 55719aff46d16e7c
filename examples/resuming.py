"""
Resume a run that was cut off
=============================

With ``log`` a run is kept in a directory, and the same call continues it after the last complete epoch. The result is
that of a run that was never cut: bit for bit, on the same machine with as many threads.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt

from tllib_ancon import PretrainConfig, pretrain
from tllib_ancon.data.demo import write_demo_domains
from tllib_ancon.training.run import RunDirectory

write_demo_domains(Path("digits"))
digits = {"root": "digits", "data": "ImageList", "image_size": 28, "no_hflip": True}
machine = {"workers": 0, "threads": 1, "quiet": True}
network = {"arch": "small_cnn", "scratch": True, "scale": (0.5, 1.0)}
pretrain(PretrainConfig(**digits, **machine, **network, source=("rendered",), epochs=6, log="runs/source"))

# %%
# One command, for the whole and for the cut run.

COMMAND = [*(sys.executable, "-m", "tllib_ancon", "adapt", "digits", "-d", "ImageList", "-t", "handwritten")]
COMMAND += ["--checkpoint", "runs/source", "--no-hflip", "--epochs", "4", "--workers", "0", "--threads", "1", "--quiet"]
subprocess.run([*COMMAND, "--log", "runs/whole", "--overwrite"], check=True)

# %%
# The second run gets SIGTERM once its first epoch is on the disk: the step ends, and so does the command.

cut = RunDirectory("runs/cut")
cut.clear()
process = subprocess.Popen([*COMMAND, "--log", "runs/cut"])
while process.poll() is None and not (cut.checkpoints / "best.pth").is_file():
    time.sleep(0.05)
process.send_signal(signal.SIGTERM)
print("exit status", process.wait())
kept = len(cut.metrics())
print(f"{kept} entries are kept, the start among them")

# %%
# The same command again continues.

subprocess.run([*COMMAND, "--log", "runs/cut"], check=True)
whole = RunDirectory("runs/whole").metrics()
same = [entry["accuracy"] for entry in cut.metrics()] == [entry["accuracy"] for entry in whole]
print("accuracies of the continued run are those of the whole run:", same)

# %%

plt.plot([entry["accuracy"] for entry in whole], color="grey", linewidth=5, alpha=0.4, label="never cut")
plt.plot([entry["accuracy"] for entry in cut.metrics()], marker="o", label="cut and continued")
plt.axvline(kept - 1, linestyle="--", color="tab:red", label="last epoch before the cut")
plt.xlabel("epoch")
plt.ylabel("accuracy on the target (%)")
plt.legend()
plt.show()

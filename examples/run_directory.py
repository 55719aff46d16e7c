"""
Read a run directory
====================

A run directory has TLLib's layout and text files, so that any tool can read it. :doc:`/run_directory` lists every file.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from tllib_ancon import PretrainConfig, adapt, pretrain
from tllib_ancon.laboratory.digits import write_demo_domains

write_demo_domains(Path("digits"))
digits = {"root": "digits", "data": "ImageList", "image_size": 28, "no_hflip": True}
machine = {"workers": 0, "threads": 1, "quiet": True}
network = {"arch": "small_cnn", "scratch": True, "scale": (0.5, 1.0)}
pretrain(PretrainConfig(**digits, **machine, **network, source=("rendered",), epochs=6, log="runs/source"))
target = {"target": ("handwritten",), "epochs": 4}
adapt("runs/source", **digits, **machine, **target, log="runs/adapted")

# %%
# Its files and their sizes in bytes:

run = Path("runs/adapted")
for file in sorted(path for path in run.rglob("*") if path.is_file()):
    print(f"{file.stat().st_size:>9,}  {file.relative_to(run)}")

# %%
# ``config.json`` has every setting, ``metrics.jsonl`` a line for each epoch, ``result.json`` the selected epoch.

config = json.loads((run / "config.json").read_text())
metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
result = json.loads((run / "result.json").read_text())
print({name: config[name] for name in ("method", "epochs", "lr", "seed", "criterion")})
print("selected epoch:", result["selected_epoch"], "accuracy:", result["selected"]["accuracy"])

# %%
# ``checkpoints/best.pth`` is a state dict.

weights = torch.load(run / "checkpoints" / "best.pth", weights_only=True)
print(f"{len(weights)} tensors, the last: {list(weights)[-1]}")

# %%
# ``predictions.npz`` has logits, features and votes of every image. A run on labelled images writes it.

predictions = np.load(run / "predictions.npz")
print({name: predictions[name].shape for name in predictions.files})

# %%
# Accuracy and calibration error of each epoch:

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), constrained_layout=True)
left.plot([entry["accuracy"] for entry in metrics], marker="o")
left.set(xlabel="epoch", ylabel="accuracy (%)")
right.plot([entry["ece"] for entry in metrics], marker="s", color="#D55E00")
right.set(xlabel="epoch", ylabel="ECE (15 bins)")
figure.suptitle(f"Accuracy changes from {metrics[0]['accuracy']:.1f} to {metrics[-1]['accuracy']:.1f} %")
plt.show()

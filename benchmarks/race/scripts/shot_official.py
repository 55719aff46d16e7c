"""SHOT's uda_digit.py as it is. Replaced, because there is no GPU: ``.cuda()`` leaves tensors on the CPU; two names
that torch has dropped come back; the source model lies where the script looks for it."""

import os
import re
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch.utils.data import dataloader


def race(task):
    torch.Tensor.cuda = lambda self, *_: self
    torch._six = SimpleNamespace(string_classes=str)
    dataloader._BaseDataLoaderIter.next = dataloader._BaseDataLoaderIter.__next__
    home, out = Path(task.images).parent, Path(task.log, f"seed{task.seed}", "m2u")
    shutil.copytree(home / "source", out)
    os.chdir(home)
    path = f"{task.code}/shot/digit/uda_digit.py"
    settings = f"--dset m2u --cls_par 0.1 --worker 0 --batch_size {task.batch_size}"
    sys.argv = [path, *settings.split(), *f"--max_epoch {task.epochs} --seed {task.seed} --output {task.log}".split()]
    sys.path.insert(0, str(Path(path).parent))
    network = runpy.run_path(path, run_name="__main__")["network"]
    told = (out / "log_tar_par_0.1.txt").read_text()
    task.accuracies = [float(value) for value in re.findall(r"Iter.*Accuracy = ([\d.]+)", told)]
    parts = network.LeNetBase(), network.feat_bottleneck(800, type="bn"), network.feat_classifier(10, type="wn")
    for part, name in zip(parts, "FBC", strict=True):
        part.load_state_dict(torch.load(out / f"target_{name}_par_0.1.pt"))
    images = torch.from_numpy(np.load(task.images)["test"])[:, None] / 127.5 - 1
    with torch.no_grad():
        return torch.nn.Sequential(*parts).eval()(images).softmax(1)

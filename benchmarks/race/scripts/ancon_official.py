"""The loop of tjoo512/ancon as it is. Replaced, because there is no GPU: ``.cuda()`` and ``.to("cuda")`` leave tensors
on the CPU; names that torch and torchvision have dropped since come back (``tllib_ancon.toolkit``); the source model
lies where the loop looks for it, and its start from ImageNet's weights is skipped (``--scratch``)."""

import os
from pathlib import Path

import numpy as np
import torch

from tllib_ancon.scripts.running import run_script


def race(task):
    to = torch.Tensor.to
    torch.Tensor.to = lambda self, *a, **b: to(self, *["cpu" if str(one).startswith("cuda") else one for one in a], **b)
    torch.Tensor.cuda = lambda self, *_: self
    os.chdir(Path(task.weights).parents[4])
    data = f"{task.images} -d Office31 -s {task.source} -t {task.target} -j 0 -b {task.batch_size}"
    network = "-a mobilenetv2_100 --scratch --train-resizing res. --val-resizing res. --resize-size 128"
    training = f"--ancon --lr 1e-2 --epochs {task.epochs} --seed {task.seed} --log {task.log}"
    run = run_script(f"{task.code}/ancon/train.py", f"{data} {network} {training}".split())
    assert run.exit_status == 0, run.failure
    (out,) = Path(task.log).parent.glob(f"{Path(task.log).name}-*/")
    logits = torch.from_numpy(np.load(out / "logit-te" / f"ep{task.epochs - 1}.npy"))
    task.accuracies = np.load(out / "accs.npy").tolist()
    return logits.softmax(1)

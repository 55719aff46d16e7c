"""
Choose a checkpoint without labels
==================================

Self-training can lose accuracy from one epoch to the next, and without labels nobody sees it. A criterion ranks epochs
by their predictions alone. This example compares every criterion of
:func:`tllib_ancon.measures.selection.score_all` on one run.
"""

from pathlib import Path

import matplotlib.pyplot as plt

from tllib_ancon import PretrainConfig, adapt, pretrain
from tllib_ancon.laboratory.digits import write_demo_domains
from tllib_ancon.measures import selection

write_demo_domains(Path("digits"))
digits = {"root": "digits", "data": "ImageList", "image_size": 28, "no_hflip": True}
machine = {"workers": 0, "threads": 1, "quiet": True}
network = {"arch": "small_cnn", "scratch": True, "scale": (0.5, 1.0)}
pretrain(PretrainConfig(**digits, **machine, **network, source=("rendered",), epochs=6, log="runs/source"))

# %%
# The criteria need probabilities (N, K) and no labels. An adaptation records each of them after every epoch.

result = adapt(
    "runs/source", **digits, **machine, target=("handwritten",), method="self-training", epochs=6,
    log="runs/self-training",
)  # fmt: skip
print(f"InfoMax selects epoch {result.selected_epoch}")

# %%
# Compare the epochs that the criteria select. Entry 0 is the source model.

for criterion in selection.CRITERIA:
    chosen = selection.best_epoch([epoch[criterion] for epoch in result.metrics], criterion)
    print(f"{criterion:<14} selects epoch {chosen}, accuracy {result.metrics[chosen]['accuracy']:.1f} %")

# %%
# The labels of this data set show the accuracy of each epoch. Adaptation does not use them.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), constrained_layout=True)
left.plot([entry["accuracy"] for entry in result.metrics], marker="o")
left.set(xlabel="epoch", ylabel="accuracy on the target (%)")
right.plot([entry["infomax"] for entry in result.metrics], marker="s", color="#D55E00")
right.set(xlabel="epoch", ylabel="InfoMax (nats)")
selected = result.metrics[result.selected_epoch]["accuracy"]
figure.suptitle(f"InfoMax selects epoch {result.selected_epoch}, whose accuracy is {selected:.1f} %")
plt.show()

"""
A method of your own
====================

A method is a class whose ``objective`` is the loss of a visit (one batch). You register it under a name. It then runs
in every command, composes with ELR and AnCon, and its options are keywords and flags. This method is self-training by
the focal loss. :doc:`/own_method` shows how to put it into a package.
"""

from pathlib import Path

import matplotlib.pyplot as plt

from tllib_ancon import PretrainConfig, adapt, methods, pretrain
from tllib_ancon.laboratory.digits import write_demo_domains


@methods.register("focal", composes=("elr", "ancon", "ancon-auto"))
class Focal(methods.Method):
    focus: float = methods.option(2.0, ge=0, help="exponent of the focal loss")

    def objective(self, visit, targets):
        log_p = visit.logits.float().log_softmax(1)
        return -(targets * (1 - log_p.exp()) ** self.focus * log_p).sum(1).mean()


# %%
# Now ``focal`` is a method like the built-in ones, and ``focus`` is a setting.

write_demo_domains(Path("digits"))
digits = {"root": "digits", "data": "ImageList", "image_size": 28, "no_hflip": True}
machine = {"workers": 0, "threads": 1, "quiet": True}
network = {"arch": "small_cnn", "scratch": True, "scale": (0.5, 1.0)}
pretrain(PretrainConfig(**digits, **machine, **network, source=("rendered",), epochs=6, log="runs/source"))

for method, options in {"self-training": {}, "focal": {"focus": 1.0}, "focal+ancon": {"focus": 1.0}}.items():
    result = adapt("runs/source", **digits, **machine, target=("handwritten",), method=method, epochs=4, **options)
    plt.plot([entry["accuracy"] for entry in result.metrics], marker="o", label=method)
plt.title(f"focal+ancon ends at {result.metrics[-1]['accuracy']:.1f} %")
plt.xlabel("epoch")
plt.ylabel("accuracy on the target (%)")
plt.legend()
plt.show()

"""A file of weights: of TLLib's scripts, dalib or the authors, of a model zoo, or of the user's network."""

from functools import partial
from pathlib import Path

from torch import nn

from tllib_ancon.models.checkpoints import Weights, load_into, load_state_dict, without_prefix
from tllib_ancon.models.copies import copy_of
from tllib_ancon.models.networks import create_backbone, create_network, parse_options
from tllib_ancon.models.references.reference import ModelRef
from tllib_ancon.models.script_layouts import rebuild_model
from tllib_ancon.runs.files import sha256
from tllib_ancon.runtime.errors import named, network_itself
from tllib_ancon.runtime.types import Options


class WeightsFile(ModelRef):
    """Weights of a network that settings build, or that the user passes beside them."""

    def network(self, settings: Options) -> nn.Module:
        state = load_state_dict(self.checkpoint)
        if self.module is not None:
            return self.with_weights(copy_of(self.module).float(), state)
        options = parse_options(settings["arch_option"])
        create = partial(create_backbone, settings["arch"], pretrained=False, options=options)
        of_script = rebuild_model(state, create, not settings["no_pool"], not settings["scratch"])
        return of_script or self._of_zoo(settings["arch"], options, state)

    def digest(self) -> str:
        return sha256(Path(self.checkpoint))

    def with_weights(self, network: nn.Module, state: Weights) -> nn.Module:
        """The network with these weights."""
        load_into(
            network,
            without_prefix(state, network),
            f"checkpoint {self.checkpoint}",
            advice="give the network that it was trained with",
        )
        return network

    def _of_zoo(self, arch: str, options: Options, state: Weights) -> nn.Module:
        """The network of a model zoo whose own names of tensors are those of the checkpoint."""
        network = create_network(arch, options=options)
        tensors = without_prefix(state, network)
        last_name = next(reversed(network.state_dict()))  # of the head
        if last_name in tensors:
            num_classes = next(iter(tensors[last_name].shape), None)
            network = create_network(arch, num_classes, options=options)
        load_into(
            network,
            tensors,
            f"checkpoint {self.checkpoint}, taken for the weights of a {arch},",
            advice=f"give its {named('arch_option')}, or pass {network_itself()}, not {named('arch')}",
        )
        return network

"""A file of weights: of TLLib's scripts, dalib or the authors, of a model zoo, or of the user's network."""

from pathlib import Path

from torch import nn

from tllib_ancon.models.checkpoints import Weights, load_into, load_state_dict, without_prefix
from tllib_ancon.models.class_names import names_of_checkpoint
from tllib_ancon.models.copies import copy_of
from tllib_ancon.models.networks import TIMM, create_backbone, create_network, library_of, parse_options
from tllib_ancon.models.references.reference import ModelRef, Request
from tllib_ancon.models.script_layouts import rebuild_model, recognize
from tllib_ancon.runs.directory import BEST, CHECKPOINTS, LATEST
from tllib_ancon.runs.files import sha256
from tllib_ancon.runtime.errors import BadFile, BadModel, named, network_itself, one_line
from tllib_ancon.runtime.types import Options, Show, silently


class WeightsFile(ModelRef):
    """Weights of a network that settings build, or that the user passes beside them."""

    @classmethod
    def recognise(cls, request: Request) -> ModelRef | None:
        if request.checkpoint is None:
            return None
        return cls(str(file_of(request.checkpoint)), request.module, request.names)

    def network(self, settings: Options, show: Show = silently) -> nn.Module:
        state = load_state_dict(self.checkpoint, show)
        if self.module is not None:
            return self.with_weights(copy_of(self.module).float(), state, show)
        layout = recognize(state)
        if layout is None:
            return self._of_zoo(settings, state, show)
        backbone = create_backbone(settings["arch"], False, options=parse_options(settings["arch_option"]))
        return rebuild_model(layout, backbone, not settings["no_pool"], not settings["scratch"])

    def digest(self) -> str:
        return sha256(Path(self.checkpoint))

    def class_names(self, network: nn.Module, num_classes: int) -> list[str] | None:
        names = super().class_names(network, num_classes)
        return names or names_of_checkpoint(self.checkpoint, num_classes)

    def with_weights(self, network: nn.Module, state: Weights, show: Show) -> nn.Module:
        """The network with these weights."""
        load_into(
            network,
            without_prefix(state, network, show),
            f"checkpoint {self.checkpoint}",
            advice="give the network that it was trained with",
        )
        return network

    def _of_zoo(self, settings: Options, state: Weights, show: Show) -> nn.Module:
        """The network of a model zoo whose own names of tensors are those of the checkpoint."""
        arch = settings["arch"]
        library, _ = library_of(arch)
        if library is None:
            raise BadModel(
                f"the layout of checkpoint {self.checkpoint} is unknown (its tensors: {one_line(', '.join(state))})",
                f"for {arch} give one of TLLib's scripts, dalib, the AnCon authors or this package",
            )
        options = parse_options(settings["arch_option"])
        network = create_network(arch, len(self._inputs.get("classes", ())) or None, options=options)
        tensors = without_prefix(state, network, show)
        num_classes = _other_number_of_classes(tensors, network)
        if num_classes is not None:
            network = create_network(arch, num_classes, options=options)
        ways = f"give its {named('arch_option')}, or " if library == TIMM else ""
        load_into(
            network,
            tensors,
            f"checkpoint {self.checkpoint}, taken for the weights of a {arch},",
            advice=f"if the network was changed, {ways}pass {network_itself()}, not {named('arch')}",
        )
        return network


def file_of(checkpoint: str) -> Path:
    """The file of weights of a checkpoint; of a directory that of its best model, else of its last."""
    path = Path(checkpoint)
    if path.is_file():
        return path
    if not path.exists():
        raise BadFile(
            f"checkpoint {checkpoint} is not a file",
            f"give a checkpoint or a run directory, or as {named('arch')} the name of a model that begins with hf: or "
            "open_clip:",
        )
    for file in (*(path / CHECKPOINTS / name for name in (BEST, LATEST)), path / BEST, path / LATEST):
        if file.is_file():
            return file
    raise BadFile(
        f"{checkpoint} holds no checkpoint",
        "give a checkpoint or a run directory, or pass a folder of transformers as "
        f"{named('arch', f'hf:{checkpoint}')}, in Python the model itself",
    )


def _other_number_of_classes(tensors: Weights, network: nn.Module) -> int | None:
    """K of a checkpoint by the tensors of which the first dimension alone differs from the network's; None where these
    are none, or differ among each other."""
    lengths = set()
    for name, expected in network.state_dict().items():
        tensor = tensors.get(name)
        if tensor is not None and tensor.ndim > 0 and tensor.shape[1:] == expected.shape[1:]:
            lengths |= {len(tensor)} - {len(expected)}
    return lengths.pop() if len(lengths) == 1 else None

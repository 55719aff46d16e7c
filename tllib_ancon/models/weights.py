"""Loading tensors into a network, or saying which ones do not fit."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from tllib_ancon.errors import UserError, one_line

MOST_LISTED = 6


def load_into(network: nn.Module, state: Mapping[str, Tensor], source: str, ignore: tuple[str, ...] = ()) -> None:
    """Load ``state`` into ``network`` completely.

    Args:
        network (nn.Module): receives the tensors
        state (mapping): name -> tensor
        source (str): where the tensors come from, for the error
        ignore (tuple of str): prefixes of tensors in ``state`` that the network need not have

    Raises:
        UserError: a tensor is missing, left over or of another shape (which ones)
    """
    expected = network.state_dict()
    needed = {name for name in expected if not name.endswith("num_batches_tracked")}
    problems = [f"{name} is missing" for name in sorted(needed - set(state))]
    problems += [
        f"{name} is not part of the network" for name in state if name not in expected and not name.startswith(ignore)
    ]
    problems += [
        f"{name} has shape {tuple(state[name].shape)}, the network {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in state and state[name].shape != tensor.shape
    ]
    if problems:
        more = f", and {len(problems) - MOST_LISTED} more" if len(problems) > MOST_LISTED else ""
        raise UserError(f"{source} does not fit the network: {'; '.join(problems[:MOST_LISTED])}{more}")
    try:
        network.load_state_dict({name: state[name] for name in expected if name in state}, strict=False)
    except RuntimeError as error:
        raise UserError(f"{source} cannot be loaded into the network ({one_line(error)})") from error

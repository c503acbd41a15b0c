"""How captured states of the target become the first hidden state of the draft model."""

from collections.abc import Mapping

import torch
from torch import Tensor

from drafter.reference.linear import linear
from drafter.reference.rms_norm import rms_norm
from drafter.spec import DraftSpec
from specmodel.errors import ParameterError


def fuse_states(spec: DraftSpec, weights: Mapping[str, Tensor], aux_states: Tensor) -> Tensor:
    r"""Hidden states for the extend pass.

    .. math:: h = W_{fc}\,(a_1, \dots, a_A) + b

    with a norm of each :math:`a_i` (`fc_norm`), or one norm of their concatenation (`norm_before_fc`),
    before the product. Without `use_aux_hidden_state` the one state given is the hidden state.

    Parameters
    ----------
    spec : DraftSpec
        The switches.
    weights : mapping of str to Tensor
        Canonical names.
    aux_states : Tensor, shape [T, A Ht], or [T, Ht] without `use_aux_hidden_state`
        :math:`a`, captured states beside each other, the lowest layer first, [-].

    Returns
    -------
    Tensor, shape [T, H]
        [-].

    Raises
    ------
    ParameterError
        If the width is not what the switches ask for.

    Notes
    -----
    [li2025]_ section 3.1; drafter.md 5 and 6.

    Examples
    --------
    >>> from drafter.random_weights import random_weights
    >>> from drafter.reference.example import example_spec
    >>> spec = example_spec()
    >>> weights = random_weights(spec, seed=0, dtype=torch.float64)
    >>> fuse_states(spec, weights, torch.ones(5, 60, dtype=torch.float64)).shape
    torch.Size([5, 24])
    """
    states = spec.num_captured_states
    width = states * spec.target_hidden_size
    if aux_states.ndim != 2 or aux_states.shape[1] != width:
        allowed = f"[T, {width}] ({states} x target_hidden_size {spec.target_hidden_size})"
        raise ParameterError("shape of aux_states", list(aux_states.shape), allowed)
    if not spec.use_aux_hidden_state:
        return aux_states
    if spec.norm_before_fc:
        aux_states = rms_norm(aux_states, weights["input_norm.weight"], spec.rms_norm_eps)
    if spec.fc_norm:
        parts = [
            rms_norm(part, weights[f"fc_norm.{index}.weight"], spec.rms_norm_eps)
            for index, part in enumerate(aux_states.split(spec.target_hidden_size, dim=-1))
        ]
        aux_states = torch.cat(parts, dim=-1)
    return linear(aux_states, weights, "fc")

"""The largest error of one element, in what its type allows."""

import torch


def element_error(out: torch.Tensor, truth: torch.Tensor) -> float:
    r"""Largest error of an element, in what its type allows.

    .. math:: \max_i \frac{|y_i - \hat y_i|}{\epsilon\,(\sigma + |\hat y_i|)}, \qquad
        \sigma^2 = \overline{\hat y^2}

    Parameters
    ----------
    out : torch.Tensor
        What a kernel wrote.
    truth : torch.Tensor
        :math:`\hat y`, fp64, of that shape.

    Returns
    -------
    float
        Infinite where an element is no number, [-].

    Notes
    -----
    A norm over the whole would hide one wrong row among thousands. :math:`\epsilon` is 0.01 for what is
    written in 16 bits, whose rounding alone is 0.004, and 0.001 for fp32, whose sums over ten thousand
    columns are off by some 1e-5. Judgements.

    Examples
    --------
    >>> truth = torch.ones(1000, dtype=torch.float64)
    >>> element_error(truth.float(), truth)
    0.0
    >>> wrong = truth.float()
    >>> wrong[7] = 2.0
    >>> element_error(wrong, truth) > 100
    True
    """
    allowed = 1e-3 if out.dtype == torch.float32 else 1e-2
    scale = truth.square().mean().sqrt() + truth.abs()
    error = float(((out.double() - truth).abs() / scale).max()) / allowed
    return error if error == error else float("inf")  # noqa: PLR0124 - NaN is no small error

"""Which cached rows a query attends to."""

from torch import Tensor


def visible_by_position(
    query_positions: Tensor, key_positions: Tensor, *, sliding_window: int | None = None
) -> Tensor:
    r"""True where a key is not after the query, and not further back than the window.

    .. math:: t_q - w < t_k \le t_q

    Parameters
    ----------
    query_positions : Tensor, shape [T]
        :math:`t_q`, [tokens].
    key_positions : Tensor, shape [S]
        :math:`t_k`, [tokens].
    sliding_window : int, optional
        :math:`w`, positions that are seen, the query's own included, [tokens].

    Returns
    -------
    Tensor of bool, shape [T, S]

    Notes
    -----
    Rows of one position, as a tree has them, see each other here: their tree decides
    (`visible_in_tree`). In training, speculators leaves the window of a draft where its first row has
    it; served, it moves on with the position, as here. [speculators-eagle3]_

    Examples
    --------
    >>> import torch
    >>> steps = torch.arange(3)
    >>> visible_by_position(steps, steps, sliding_window=2).int().tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    distance = query_positions[:, None] - key_positions[None, :]
    seen = distance >= 0
    return seen if sliding_window is None else seen & (distance < sliding_window)


def visible_in_tree(
    query_positions: Tensor,
    key_positions: Tensor,
    ancestors: Tensor,
    *,
    sliding_window: int | None = None,
) -> Tensor:
    """True for the rows before the tree by position, and in the tree for ancestors and the row itself.

    Parameters
    ----------
    query_positions : Tensor, shape [T]
        Of the rows of one level, [tokens].
    key_positions : Tensor, shape [S]
        Of all cached rows; the last ones are those of the tree, [tokens].
    ancestors : Tensor of bool, shape [T, N]
        Which of the last N cached rows are ancestors of each row, or the row itself.
    sliding_window : int, optional
        Positions that are seen, the query's own included, [tokens].

    Returns
    -------
    Tensor of bool, shape [T, S]

    Examples
    --------
    >>> import torch
    >>> both = torch.tensor([1, 1])  # two first guesses after one row
    >>> visible_in_tree(both, torch.tensor([0, 1, 1]), torch.eye(2, dtype=torch.bool)).int().tolist()
    [[1, 1, 0], [1, 0, 1]]
    """
    seen = visible_by_position(query_positions, key_positions, sliding_window=sliding_window)
    before = len(key_positions) - ancestors.shape[1]
    seen[:, before:] &= ancestors
    return seen

"""How many tokens a client saw in a chunk of a stream: several only where the server speculates."""

from typing import Final

SEVERAL_TOKENS: Final = 1.2
"""Mean from which on a server must have speculated; a judgement, below it chunks are tokens."""


def tokens_per_chunk(chunk_ms: float | None, token_ms: float | None) -> float | None:
    """Return the mean number of tokens in a chunk, None where a time is missing or not positive.

    Parameters
    ----------
    chunk_ms : float or None
        Mean time between chunks, [ms].
    token_ms : float or None
        Mean time of a token after the first one, [ms].

    Examples
    --------
    >>> tokens_per_chunk(25.0, 10.0), tokens_per_chunk(25.0, None)
    (2.5, None)
    """
    if chunk_ms is None or token_ms is None or chunk_ms <= 0 or token_ms <= 0:
        return None
    return chunk_ms / token_ms

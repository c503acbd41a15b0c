"""How many tokens a client saw in a chunk of a stream: several only where the server speculates."""

from typing import Final

# Mean from which on a server must have speculated; a judgement, below it chunks are tokens.
SEVERAL_TOKENS: Final = 1.2


def tokens_per_chunk(chunk_ms: float | None, token_ms: float | None) -> float | None:
    """Return the mean number of tokens in a chunk, None where a time is missing or not positive."""
    if chunk_ms is None or token_ms is None or chunk_ms <= 0 or token_ms <= 0:
        return None
    return chunk_ms / token_ms

"""A configuration in few words, for the first column of a table."""

from specmodel.question import Configuration


def short_words(configuration: Configuration) -> str:
    """Return a configuration with short words.

    Examples
    --------
    >>> short_words(Configuration(num_steps=3, topk=4, num_draft_tokens=16, context_tokens=1024))
    'depth 3, topk 4, 16 tokens, ctx 1024'
    >>> short_words(Configuration())
    'unstated depth'
    """
    text = str(configuration)
    for long, short in (("draft tokens", "tokens"), ("context", "ctx"), ("depth not stated", "-")):
        text = text.replace(long, short)
    return "unstated depth" if text == "-" else text

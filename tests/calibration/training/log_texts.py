"""Lines as trainers print them, for tests of what is made of them."""

from collections.abc import Sequence


def train_line(
    step: int | None,
    joint: Sequence[float],
    *,
    conditional: Sequence[float] | None = None,
    epoch: int = 0,
    rate: str = "1.00e-04",
    loss: str = "2.000",
) -> str:
    """Return a train record of speculators; without a step as old versions print it."""
    metrics = _metrics(joint, conditional, "train/{}_{}", loss)
    end = "" if step is None else f", global_step={step}"
    return f"[08:00:00] INFO     {metrics}, train/loss=5.000, epoch={epoch}, lr={rate}{end}    a.py:2\n"


def val_line(
    joint: Sequence[float], *, conditional: Sequence[float] | None = None, epoch: int = 0
) -> str:
    """Return a validation record of speculators."""
    metrics = _metrics(joint, conditional, "val/{}_{}_epoch", "2.000")
    return f"[08:00:00] INFO     {metrics}, val/loss_epoch=5.000, epoch={epoch}    a.py:2\n"


def _metrics(
    joint: Sequence[float], conditional: Sequence[float] | None, key: str, loss: str
) -> str:
    """Return the metrics of a record; conditional values are those that the joint ones imply."""
    if conditional is None:
        above = [1.0, *joint]
        conditional = [
            one / before if before else 0.0 for one, before in zip(joint, above, strict=False)
        ]
    pairs = []
    for depth, (full, chance) in enumerate(zip(joint, conditional, strict=True)):
        pairs += [
            f"{key.format('loss', depth)}={loss}",
            f"{key.format('full_acc', depth)}={full:.3f}",
            f"{key.format('cond_acc', depth)}={chance:.3f}",
        ]
    return ", ".join(pairs)

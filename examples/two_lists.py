"""Accept length from accuracies: the same five numbers mean different things."""

from specmodel import ConditionalAccuracy, FullAccuracy
from specmodel.acceptance import check_shape, required_conditional, tail_spread


def main() -> None:
    """Work the reference lists of a training log."""
    full = FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097])
    conditional = ConditionalAccuracy([0.77, 0.65, 0.60, 0.57, 0.53])
    print(f"as full accuracies:        accept length {full.accept_length():.3f}")
    print(f"as conditional accuracies: accept length {conditional.accept_length():.3f}")
    for finding in check_shape(full):
        print(f"{finding.code}: {finding.message}")
    spread = tail_spread(full, 10)
    value, low, high = (float(column[-1]) for column in (spread.value, spread.low, spread.high))
    print(f"carried to depth 10: {value:.2f} ({low:.2f} to {high:.2f})")
    needed = required_conditional(full, 10, 3.1)
    print(f"to reach 3.1 at depth 10, every later step would need accuracy {needed:.2f}")


if __name__ == "__main__":
    main()

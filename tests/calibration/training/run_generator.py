"""Generated training runs of known truth, of more shapes than the projection has forms.

A truth is a mixture of saturating curves of six families, each depth with its own constants, in steps
or in summed learning rate; a falling learning rate lifts it a little. Noise is correlated in time and
over depths. All ranges are in `draw_run`; nothing here is imported by the package.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Shape = Callable[[Array], Array]

SCHEDULES = ("cosine", "linear", "constant", "wsd")
FAMILIES = ("power", "exponential", "two-exponentials", "stretched", "hill", "logarithm")


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedRun:
    """What a trainer would have printed, and the truth behind it."""

    steps: Array
    accuracies: Array
    kind: str
    split: str
    rounding: float
    learning_rate: Array | None
    total_steps: int
    schedule: str
    families: tuple[str, ...]
    warm_up: int
    truth: Callable[[float], Array]
    """Conditional accuracies without noise at a step."""

    def seen(self, fraction: float) -> "tuple[Array, Array, Array | None]":
        """Steps, accuracies and learning rate of the first part of the run."""
        first = self.steps <= fraction * self.total_steps
        rate = None if self.learning_rate is None else self.learning_rate[first]
        return self.steps[first], self.accuracies[first], rate

    def true_accept_length(self, step: float | None = None) -> float:
        """Accept length of the truth, bonus token included; at the end of the run by default."""
        values = self.truth(float(self.total_steps if step is None else step))
        return 1.0 + float(np.cumprod(values).sum())


def schedule_of(name: str, total: int, warm_up: int, floor: float, decay: float) -> Array:
    """Learning rate over its peak after each of the steps 1 ... total."""
    step = np.arange(1, total + 1, dtype=np.float64)
    progress = np.clip((step - warm_up) / max(total - warm_up, 1), 0.0, 1.0)
    if name == "cosine":
        shape = 0.5 * (1.0 + np.cos(np.pi * progress))
    elif name == "linear":
        shape = 1.0 - progress
    elif name == "wsd":
        shape = np.clip((1.0 - progress) / decay, 0.0, 1.0)
    else:
        shape = np.ones(total)
    rate = floor + (1.0 - floor) * shape
    return np.asarray(np.where(step < warm_up, step / warm_up, rate))


def saturating(family: str, rng: np.random.Generator) -> Shape:
    """A rise from 0 at 0 that saturates at 1, over the fraction of the run."""
    if family == "power":
        exponent, offset = rng.uniform(0.3, 1.3), np.exp(rng.uniform(np.log(0.004), np.log(0.06)))
        return lambda x: 1.0 - (1.0 + x / offset) ** -exponent
    if family == "exponential":
        time = np.exp(rng.uniform(np.log(0.04), np.log(0.4)))
        return lambda x: 1.0 - np.exp(-x / time)
    if family == "two-exponentials":
        fast, slow = np.exp(rng.uniform(np.log(0.02), np.log(0.1))), rng.uniform(0.15, 0.7)
        share = rng.uniform(0.4, 0.85)
        return lambda x: 1.0 - share * np.exp(-x / fast) - (1.0 - share) * np.exp(-x / slow)
    if family == "stretched":
        time, stretch = np.exp(rng.uniform(np.log(0.02), np.log(0.2))), rng.uniform(0.4, 0.9)
        return lambda x: 1.0 - np.exp(-((x / time) ** stretch))
    if family == "hill":
        half, slope = np.exp(rng.uniform(np.log(0.01), np.log(0.15))), rng.uniform(0.7, 1.5)
        return lambda x: x**slope / (x**slope + half**slope)
    scale = np.exp(rng.uniform(np.log(0.003), np.log(0.05)))  # never quite saturates
    return lambda x: np.log1p(x / scale) / np.log1p(1.0 / scale)


def draw_run(seed: int) -> GeneratedRun:
    """A run of random length, depth, shape, schedule, noise and restarts."""
    rng = np.random.default_rng([20260, seed])
    total = int(np.exp(rng.uniform(np.log(1500), np.log(40000))))
    warm_up = max(2, int(total * rng.uniform(0.005, 0.06)))
    schedule = SCHEDULES[int(rng.choice(4, p=(0.4, 0.2, 0.2, 0.2)))]
    floor = float(rng.choice([0.0, 0.1])) if schedule != "constant" else 1.0
    rate = schedule_of(schedule, total, warm_up, floor, rng.uniform(0.1, 0.3))
    truth, families = _draw_truth(rng, rate, warm_up)
    if rng.random() < 0.5:
        split, every = "val", total / int(rng.integers(25, 80))
    else:
        split, every = "train", max(1.0, total / int(rng.integers(400, 3000)))
    steps = np.unique(np.round(np.arange(1, total / every + 1e-9) * every)).astype(np.float64)
    steps = steps[steps >= 1]
    exact = np.stack([truth(step) for step in steps])
    noisy = _with_noise(rng, exact, steps, total, split)
    kind = "joint" if rng.random() < 0.5 else "conditional"
    printed = np.cumprod(noisy, axis=1) if kind == "joint" else noisy
    rounding = 0.005 if rng.random() < 0.15 and kind == "conditional" else 0.0005
    printed = np.clip(np.round(printed / (2 * rounding)) * 2 * rounding, 0.0, 1.0)
    known = rng.random() < 0.85
    peak = 10 ** rng.uniform(-5, -3.3)
    shown = np.array([float(f"{peak * rate[int(step) - 1]:.2e}") for step in steps])
    return GeneratedRun(
        steps=steps, accuracies=printed, kind=kind, split=split, rounding=rounding,
        learning_rate=shown if known else None, total_steps=total, schedule=schedule,
        families=families, warm_up=warm_up, truth=truth,
    )  # fmt: skip


def _draw_truth(
    rng: np.random.Generator, rate: Array, warm_up: int
) -> tuple[Callable[[float], Array], tuple[str, ...]]:
    """Return the conditional accuracies as a function of the step."""
    total, depths = rate.size, int(rng.integers(1, 9))
    end = [float(rng.uniform(0.45, 0.88))]
    for _ in range(depths - 1):
        end.append(float(np.clip(end[-1] + rng.uniform(-0.1, 0.03), 0.25, 0.92)))
    start = np.array(end) * rng.uniform(0.0, 0.25 if rng.random() < 0.7 else 0.85)
    family = str(rng.choice(FAMILIES))
    families = tuple(family if rng.random() < 0.7 else str(rng.choice(FAMILIES)) for _ in end)
    shape_seed = int(rng.integers(2**31))
    shapes = []
    for name in families:  # depths learn alike: the same constants, times stretched a little
        shape = saturating(name, np.random.default_rng(shape_seed))
        shapes.append((shape, float(np.exp(rng.normal(0.0, 0.15)))))
    by_rate = rng.random() < 0.35
    intrinsic = np.cumsum(rate) / np.sum(rate)
    lift = min(rng.exponential(0.035), 0.12) * rng.uniform(0.5, 1.5, size=depths)
    # the lift belongs to a rate below its peak, so it comes gradually with cosine and late with WSD
    level = np.array(end)

    def truth(step: float) -> Array:
        index = min(max(int(step), 1), total) - 1
        x = intrinsic[index] if by_rate else step / total
        values = np.array([shape(np.asarray(x * speed)) for shape, speed in shapes])
        accuracy = start + (level - start) * values
        gain = lift * (1.0 - rate[index]) if step > warm_up else np.zeros(depths)
        logit = np.log(np.clip(accuracy, 1e-4, 0.999) / (1 - np.clip(accuracy, 1e-4, 0.999)))
        return np.asarray(1.0 / (1.0 + np.exp(-logit - gain)))

    return truth, families


def _with_noise(
    rng: np.random.Generator, exact: Array, steps: Array, total: int, split: str
) -> Array:
    """Return the accuracies as counted on finite data: correlated in time and over depths."""
    points, depths = exact.shape
    memory, shared = rng.uniform(0.0, 0.8), rng.uniform(0.2, 0.9)
    size = np.exp(rng.uniform(*np.log((0.001, 0.008) if split == "val" else (0.008, 0.04))))
    white = shared * rng.normal(size=(points, 1)) + np.sqrt(1 - shared**2) * rng.normal(
        size=(points, depths)
    )
    noise = white.copy()
    for i in range(1, points):
        noise[i] = memory * noise[i - 1] + np.sqrt(1 - memory**2) * white[i]
    deeper = 1.0 + 0.3 * np.arange(depths)  # fewer starts get there
    noise *= size * deeper * np.sqrt(exact * (1 - exact)) / 0.45
    for restart in rng.uniform(0.05, 0.95, size=rng.integers(0, 3)) * total:  # lost optimiser state
        after = np.where(steps > restart, steps - restart, np.inf)
        noise -= rng.uniform(0.0, 0.02) * np.exp(-after / (0.01 * total))[:, None]
    if rng.random() < 0.1:  # a batch that went wrong
        noise[rng.integers(points)] -= rng.uniform(0.05, 0.2)
    return np.asarray(np.clip(exact + noise, 0.0, 0.999))


def central(draws: Array) -> Array:
    """Ends of the central 90 % of draws."""
    return np.asarray(np.quantile(draws, (0.05, 0.95), axis=0))

"""Laws of an all-reduce: limits, published numbers, and what a gate lets through."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.cost.allreduce import (
    AllReduceCurve,
    PeerAccess,
    TwoProtocols,
    allreduce_prior,
    prior_classes,
    ring_factor,
    vllm_kernel,
)
from specmodel.errors import ParameterError, UnknownKeyError

KIB = 1024


# --- the measured curve ---


@given(floor=st.floats(1e-6, 1e-4), slope=st.floats(1e-12, 1e-9), size=st.floats(1024, 2**22))
def test_a_latency_and_a_bandwidth_are_met_exactly_between_the_sizes(
    floor: float, slope: float, size: float
) -> None:
    sizes = 1024.0 * 2.0 ** np.arange(13)
    curve = AllReduceCurve.from_points(sizes, floor + slope * sizes)
    assert float(curve.at(size)) == pytest.approx(floor + slope * size, rel=1e-9)
    assert np.abs(curve.left_out_errors()).max() < 1e-9


def test_the_order_and_the_shape_of_points_do_not_matter() -> None:
    curve = AllReduceCurve.from_points([4, 1, 2], [4.0, 1.0, 2.0])
    assert curve.at([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert curve.at(0) == 1.0


def test_beyond_the_sizes_time_neither_falls_nor_grows_faster_than_the_message() -> None:
    falling = AllReduceCurve.from_points([1, 2, 4], [1.0, 3.0, 2.0])
    assert float(falling.at(8)) == 2.0
    steep = AllReduceCurve.from_points([1, 2], [1.0, 9.0])
    assert float(steep.at(4)) == pytest.approx(18.0)
    assert steep.beyond([0.25, 1, 1.5, 2, 8]).tolist() == [4, 1, 1, 1, 4]


@pytest.mark.parametrize(
    ("sizes", "times"),
    [([], []), ([1, 2], [1.0]), ([0], [1.0]), ([1], [math.nan]), ([1], [-1.0]), ([math.inf], [1])],
)
def test_impossible_points_are_refused(sizes: list[float], times: list[float]) -> None:
    with pytest.raises(ParameterError):
        AllReduceCurve.from_points(sizes, times)


# --- libraries ---


def test_the_ring_factor_is_that_of_the_bus_bandwidth_of_nccl_tests() -> None:
    assert [ring_factor(ranks) for ranks in (2, 4, 8)] == [1.0, 1.5, 1.75]
    with pytest.raises(ParameterError):
        ring_factor(1)


@given(size=st.floats(0, 2**24))
def test_laws_are_a_latency_and_a_bandwidth_on_each_side_of_their_switch(size: float) -> None:
    library = TwoProtocols(
        num_ranks=8,
        floor_s=24e-6,
        small_bytes_per_s=9e9,
        step_s=71e-6,
        large_bytes_per_s=27e9,
        switch_bytes=512 * KIB,
    )
    engine = PeerAccess(
        num_ranks=6,
        one_shot_floor_s=4.6e-6,
        one_shot_bytes_per_s=300e9,
        two_shot_floor_s=11.4e-6,
        two_shot_bytes_per_s=281e9,
        switch_bytes=512 * KIB,
    )
    if size <= 512 * KIB:
        expected = 24e-6 + 1.75 * size / 9e9, 4.6e-6 + 5 * size / 300e9
    else:
        expected = 95e-6 + 1.75 * size / 27e9, 11.4e-6 + 5 / 3 * size / 281e9
    assert (float(library.at(size)), float(engine.at(size))) == pytest.approx(expected)


# --- kernels of engines ---


@pytest.mark.parametrize(
    ("ranks", "size", "nvlink", "capability", "kernel"),
    [
        (2, 4096, False, 120, "one_shot"),
        (4, 4096, False, 120, "library"),
        (4, 512 * KIB - 16, True, 90, "one_shot"),
        (4, 512 * KIB, True, 90, "two_shot"),
        (8, 256 * KIB, True, 90, "two_shot"),
        (8, 256 * KIB + 16, True, 90, "library"),
        (8, 256 * KIB + 16, True, 80, "two_shot"),
        (8, 1000, True, 90, "library"),
        (3, 4096, True, 90, "library"),
        (2, 2**20 * 8 + 16, True, 80, "library"),
    ],
)
def test_the_gate_of_vllm(
    ranks: int, size: int, nvlink: bool, capability: int, kernel: str
) -> None:
    found = vllm_kernel(ranks, size, fully_nvlinked=nvlink, compute_capability=capability)
    assert found == kernel


# --- priors ---


def test_every_class_has_a_prior_for_any_number_of_ranks() -> None:
    for interconnect, kernels in prior_classes().items():
        for kernel in kernels:
            floors = []
            for ranks in (2, 3, 4, 6, 8, 16, 32):
                prior = allreduce_prior(interconnect, ranks, kernel=kernel)
                assert prior.log_sd > 0
                floors.append(float(prior.at(1024)))
            assert floors == sorted(floors)


def test_a_carried_prior_is_wider() -> None:
    known, carried = allreduce_prior("nvlink4", 8), allreduce_prior("nvlink4", 6)
    assert carried.log_sd > known.log_sd
    assert known.law.floor_s > carried.law.floor_s > allreduce_prior("nvlink4", 4).law.floor_s  # type: ignore[union-attr]


def test_an_unknown_class_names_the_known_ones() -> None:
    with pytest.raises(UnknownKeyError, match="pcie5"):
        allreduce_prior("nvlink9", 8)
    with pytest.raises(UnknownKeyError, match="nccl"):
        allreduce_prior("nvlink4", 8, kernel="mpi")
    with pytest.raises(ParameterError):
        allreduce_prior("nvlink4", 1)


def test_eight_cards_on_pcie_at_one_token_of_kimi() -> None:
    prior = allreduce_prior("pcie5", 8)
    bound = math.exp(1.645 * prior.log_sd)
    assert prior.at(14336) / bound < 17e-6  # the fastest of eight row sets, and the slowest
    assert prior.at(14336) * bound > 57e-6
    assert float(prior.at(14336)) == pytest.approx(27e-6, rel=0.1)

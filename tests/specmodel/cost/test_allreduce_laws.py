"""Laws of an all-reduce: limits, published numbers, and what a gate lets through."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmodel.cost.allreduce_curve import AllReduceCurve
from specmodel.cost.allreduce_forms import (
    TwoProtocols,
    floor_time_s,
    ideal_switch_bytes,
    multi_node_floor_time_s,
    ring_factor,
)
from specmodel.cost.allreduce_peer_access import PeerAccess, shot_crossover_bytes, vllm_kernel
from specmodel.cost.allreduce_prior import allreduce_prior, prior_classes
from specmodel.errors import ParameterError, UnknownKeyError

KIB = 1024


# --- the measured curve ---


@given(
    floor=st.floats(1e-6, 1e-4),
    slope=st.floats(1e-12, 1e-9),
    size=st.floats(1024, 2**22),
)
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


def test_two_protocols_cross_where_their_times_are_equal() -> None:
    switch = ideal_switch_bytes(8, 71e-6, 9e9, 27e9)
    form = TwoProtocols(
        num_ranks=8,
        floor_s=24e-6,
        small_bytes_per_s=9e9,
        step_s=71e-6,
        large_bytes_per_s=27e9,
        switch_bytes=switch,
    )
    below, above = form.at([switch, switch * (1 + 1e-9)])
    assert below == pytest.approx(above)
    assert 520e3 <= switch <= 560e3  # 8 RTX PRO 6000 switch at 512 to 530 KB
    assert ideal_switch_bytes(8, 1e-6, 27e9, 9e9) == math.inf


# floors at 2, 4 and 8 GPUs as published tables show them, in µs
FLOORS = {
    "RTX PRO 6000, NCCL 2.29.2": (3.3, 1.62, (6.5, 13.4, 25.5)),
    "L40S, NCCL 2.27.3": (3.4, 1.51, (6.4, 12.4, 24.5)),
    "H100, NCCL 2.29.2": (4.8, 0.79, (6.4, 9.6, 15.8)),
    "H200, NCCL 2.29.2": (4.9, 0.82, (6.5, 9.8, 16.4)),
    "A100, NCCL 2.27.3": (8.3, 0.95, (10.1, 14.2, 21.5)),
    "B200, NCCL 2.29.2": (7.7, 1.29, (10.3, 15.3, 25.8)),
}


@pytest.mark.parametrize("machine", FLOORS)
def test_the_floor_grows_with_the_hops_of_a_ring(machine: str) -> None:
    base, hop, floors = FLOORS[machine]
    for ranks, floor in zip((2, 4, 8), floors, strict=True):
        assert floor_time_s(ranks, base, hop) == pytest.approx(floor, rel=0.035)


def test_sixteen_gpus_take_a_tree_and_not_a_ring() -> None:
    ring = 3.3 + 30 * 1.62
    assert ring > 50
    assert floor_time_s(16, 3.3, 1.62) == pytest.approx(36.07, rel=0.05)  # b12x pull request 139
    assert floor_time_s(9, 3.3, 1.62) > floor_time_s(8, 3.3, 1.62)


def test_one_node_has_no_network_and_more_nodes_take_the_shorter_of_ring_and_tree() -> None:
    assert multi_node_floor_time_s(8, 1, 5, 1, 9) == floor_time_s(8, 5, 1)
    assert multi_node_floor_time_s(2, 2, 5.0, 1.0, 10.0) == 5.0 + 2 * 10.0
    ring, tree = 5 + (2 * 15 - 2) * 1 + 2 * 10, 5 + 2 * (7 * 1 + 1 * 10)
    assert multi_node_floor_time_s(16, 2, 5.0, 1.0, 10.0) == min(ring, tree)
    with pytest.raises(ParameterError):
        multi_node_floor_time_s(8, 3, 1.0, 1.0, 1.0)


# --- kernels of engines ---


def test_one_shot_and_two_shot_are_equal_at_their_crossover() -> None:
    law = PeerAccess(
        num_ranks=6,
        one_shot_floor_s=4.6e-6,
        one_shot_bytes_per_s=300e9,
        two_shot_floor_s=11.4e-6,
        two_shot_bytes_per_s=281e9,
    )
    size = shot_crossover_bytes(law)
    one = law.one_shot_floor_s + 5 * size / 300e9
    two = law.two_shot_floor_s + ring_factor(6) * size / 281e9
    assert one == pytest.approx(two)


def test_a_pair_never_gains_from_two_shots_of_the_same_bandwidth() -> None:
    law = PeerAccess(
        num_ranks=2,
        one_shot_floor_s=4e-6,
        one_shot_bytes_per_s=1e9,
        two_shot_floor_s=5e-6,
        two_shot_bytes_per_s=1e9,
    )
    assert shot_crossover_bytes(law) == math.inf


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
                low, high = prior.interval([1024, 2**20])
                assert (low < prior.at([1024, 2**20])).all()
                assert (prior.at([1024, 2**20]) < high).all()
                floors.append(float(prior.at(1024)))
            assert floors == sorted(floors)


def test_a_carried_prior_is_wider() -> None:
    known, carried = allreduce_prior("nvlink4", 8), allreduce_prior("nvlink4", 6)
    assert (known.carried, carried.carried) == (False, True)
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
    low, high = prior.interval(14336)
    assert low < 17e-6  # the fastest of eight row sets, and the slowest
    assert high > 57e-6
    assert float(prior.at(14336)) == pytest.approx(27e-6, rel=0.1)

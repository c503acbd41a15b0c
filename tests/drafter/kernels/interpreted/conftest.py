"""What the interpreted tests share: guarded tensors, the measure of error, its limits."""

from collections.abc import Callable, Iterator

import pytest
import torch

PAD = 192
CANARY = -77.0
LIMITS = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 1.5e-2}


class Guard:
    """Tensors between pads: a read past an end gives NaN, a write past one is found afterwards."""

    def __init__(self) -> None:
        self._written: list[torch.Tensor] = []

    def given(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor with NaN on both sides; integers are returned as they are."""
        if not tensor.is_floating_point():
            return tensor.contiguous()
        line = torch.full((tensor.numel() + 2 * PAD,), float("nan"), dtype=tensor.dtype)
        line[PAD:-PAD] = tensor.reshape(-1)
        return line[PAD:-PAD].view(tensor.shape)

    def space(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Space for a result: NaN inside (the lowest number for integers), canaries on both sides."""
        count = torch.Size(shape).numel()
        line = torch.full((count + 2 * PAD,), CANARY).to(dtype)
        line[PAD:-PAD] = float("nan") if dtype.is_floating_point else torch.iinfo(dtype).min
        self._written.append(line)
        return line[PAD:-PAD].view(shape)

    def check(self) -> None:
        """Every pad is as it was."""
        for line in self._written:
            pads = torch.cat([line[:PAD], line[-PAD:]]).to(torch.float64)
            assert torch.all(pads == CANARY), "written past an end"


@pytest.fixture
def guard() -> Iterator[Guard]:
    made = Guard()
    yield made
    made.check()


@pytest.fixture
def check_close() -> Callable[..., None]:
    """Asserts that the relative error of the norm is within the limit of a storage type."""

    def check(out: torch.Tensor, truth: torch.Tensor, dtype: torch.dtype) -> None:
        assert out.shape == truth.shape
        assert not out.isnan().any()
        error = torch.linalg.vector_norm(out.double() - truth) / torch.linalg.vector_norm(truth)
        assert float(error) <= LIMITS[dtype], f"relative error {float(error):.2e} in {dtype}"

    return check


@pytest.fixture
def limits() -> dict[torch.dtype, float]:
    return LIMITS


@pytest.fixture
def normal() -> Callable[..., torch.Tensor]:
    """Normal numbers rounded to a storage type; equal in every run."""
    generator = torch.Generator().manual_seed(11)

    def draw(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
        return (scale * torch.randn(shape, generator=generator)).to(dtype)

    return draw

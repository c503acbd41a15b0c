import torch

from drafter.reference.layer import rms_norm


def test_rows_have_a_root_mean_square_of_one_whatever_their_scale() -> None:
    x = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for scale in (1e-3, 1.0, 1e5):
        rows = rms_norm(scale * x, torch.ones(9, dtype=torch.float64), 1e-300)
        torch.testing.assert_close(rows.square().mean(dim=-1), torch.ones(4, dtype=torch.float64))
        torch.testing.assert_close(rows * x.norm(dim=-1, keepdim=True) / 3, x)


def test_weights_multiply_and_eps_is_added_to_the_mean_square() -> None:
    rows = rms_norm(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 3.0]), 3.0)
    assert rows.tolist() == [1.0, 1.5]


def test_a_row_of_zeros_stays_zero() -> None:
    assert rms_norm(torch.zeros(2, 3), torch.ones(3), 1e-6).tolist() == [[0.0] * 3] * 2

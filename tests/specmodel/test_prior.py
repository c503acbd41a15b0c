import json
from collections.abc import Callable
from importlib import resources

import numpy as np
import pytest

from specmodel.constants import NAMES, NUM_CONSTANTS
from specmodel.prior import Prior, target_key
from specmodel.records import from_record, to_record


def correlated(make_prior: Callable[..., Prior]) -> Prior:
    mixing = np.random.default_rng(0).normal(size=(NUM_CONSTANTS, NUM_CONSTANTS))
    plain = make_prior()
    return Prior(
        mean=plain.mean,
        covariance=mixing @ mixing.T + np.eye(NUM_CONSTANTS),
        noise=plain.noise,
        name="correlated",
        learned_from=plain.learned_from,
    )


def test_a_prior_survives_its_record(make_prior: Callable[..., Prior]) -> None:
    prior = correlated(make_prior)
    again = from_record(Prior, json.loads(json.dumps(to_record(prior))))
    np.testing.assert_allclose(again.mean, prior.mean, rtol=1e-7)
    np.testing.assert_allclose(again.covariance, prior.covariance, rtol=1e-7)
    assert again.noise == prior.noise
    assert again.learned_from == prior.learned_from


def test_packaged_priors_have_the_constants_in_their_order() -> None:
    packaged = json.loads(resources.files("specmodel").joinpath("data/priors.json").read_text())
    assert packaged["constants"] == list(NAMES)


def test_medians_are_in_natural_units(make_prior: Callable[..., Prior]) -> None:
    median = make_prior().median
    assert list(median) == list(NAMES)
    assert median["fixed_cost"] == pytest.approx(1.15)
    assert median["non_decode_share"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "name",
    ["Llama-3.1-8B", "meta-llama/Llama-3.1-8B", "hub/meta-llama/LLAMA-3.1-8b/", " llama-3.1-8b "],
)
def test_one_target_model_has_one_key(name: str) -> None:
    assert target_key(name) == "llama-3.1-8b"

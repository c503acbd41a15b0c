"""What a throughput is counted over."""

import pytest

from calibration.readers.columns import SCOPES, scope_of


@pytest.mark.parametrize("scope", SCOPES)
def test_scopes_mean_themselves_in_any_spelling(scope: str) -> None:
    for text in (scope, scope.upper(), scope.replace("_", " "), scope.replace("_", "-")):
        assert scope_of(f" {text} ") == scope


@pytest.mark.parametrize(
    ("written", "scope"),
    [
        *(("user", "per_user"), ("/user", "per_user"), ("tok/s/user", "per_user")),
        *(("tokens/s per user", "per_user"), ("tps/user", "per_user"), ("Tok/s/Req", "per_user")),
        *(("per request", "per_user"), ("tokens_per_s_per_gpu", "per_gpu"), ("GPU", "per_gpu")),
        *(("total", "aggregate"), ("Total tok/s", "aggregate"), ("tok/s", "aggregate")),
        *(("tok/sec", "aggregate"), ("tokens per second per user", "per_user")),
    ],
)
def test_usual_spellings(written: str, scope: str) -> None:
    assert scope_of(written) == scope


@pytest.mark.parametrize("written", ["per_banana", "banana", "tok/s/node", "req/s", "per", "1"])
def test_anything_else_is_no_scope(written: str) -> None:
    assert scope_of(written) is None

"""Banners of servers: every value by its name, whatever the values contain."""

import pytest

from calibration.readers.sglang_server_log import server_arguments


def test_values_are_told_apart_whatever_they_contain() -> None:
    banner = (
        "[t] server_args=ServerArgs(model_path='a, tp_size=9)', quote=\"it's\", tp_size=2, "
        "cuda_graph_bs=[1, 2, (3, 4)], overrides={'tp_size': 7}, kind=<Kind.A: 'a'>, "
        "escaped='a\\'b, c', ratio=0.82, off=None, on=True)"
    )
    assert server_arguments(banner) == {
        "model_path": "a, tp_size=9)",
        "quote": "it's",
        "tp_size": 2,
        "cuda_graph_bs": "[1, 2, (3, 4)]",
        "overrides": "{'tp_size': 7}",
        "kind": "<Kind.A: 'a'>",
        "escaped": "a'b, c",
        "ratio": 0.82,
        "off": None,
        "on": True,
    }


@pytest.mark.parametrize("cut", range(20, 90))
def test_a_banner_that_was_cut_gives_what_stands_whole(cut: int) -> None:
    banner = "server_args=ServerArgs(tp_size=2, model_path='acme/Wren', dp_size=4, bs=[1, 2])"
    whole = server_arguments(banner)
    found = server_arguments(banner[:cut])
    assert all(whole[name] == value for name, value in found.items())


def test_no_banner_has_no_arguments() -> None:
    assert server_arguments("ready to serve") == {}
    assert server_arguments("ServerArgs(" + "(" * 5000 + "'" * 5000) == {}

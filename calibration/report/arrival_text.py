"""A server at an arrival rate, as text and as JSON."""

import math

from calibration.predict.arrival import ArrivalAnswer, ServedWay
from calibration.report.prediction_text import calibration_words
from specmodel.question import Estimate
from specmodel.text_layout import fits, labelled, number, percent, probability, table, with_interval
from specmodel.units import MILLI

_WAITING = 0.01
"""Share of a request's time from which waiting for a place is shown. [-]"""

FAR_BEYOND = 10.0
"""Share of the largest rate from which a per cent is no help. [-]"""


def arrival_text(answer: ArrivalAnswer) -> str:
    """Return an answer as text; its notes are printed apart."""
    return "\n".join(
        [
            *_head(answer),
            "",
            labelled("configuration", _configuration(answer)),
            labelled("accept length", with_interval(answer.accept_length.estimate)),
            labelled("arrivals", _arrivals(answer)),
            labelled("server", _server(answer)),
            "",
            _ways(answer),
            "",
            *_verdict(answer),
        ]
    )


def _head(answer: ArrivalAnswer) -> list[str]:
    """Where the times come from."""
    lines = [calibration_words(answer.calibration, answer.source)]
    if answer.changes:
        asked = ", ".join(f"{key}={text}" for key, text in answer.changes)
        lines += ["", labelled("with", f"{asked}: the physical form")]
    elif answer.form == "physical":
        lines += [
            "",
            labelled("by", "the physical form: baselines at one batch say nothing of others"),
        ]
    return lines


def _configuration(answer: ArrivalAnswer) -> str:
    """What drafts, and at which load besides the batch."""
    text = str(answer.configuration)
    if answer.configuration.num_steps is None:
        text = text.replace("depth not stated", "the calibrated depth (not stated)")
    return text + (f", workload {answer.workload}" if answer.workload else "")


def _arrivals(answer: ArrivalAnswer) -> str:
    """What arrives."""
    arrival = answer.arrival
    text = f"{arrival.arrival_rate_per_s:g} requests/s, each of {arrival.output_tokens:g} output tokens"
    if arrival.prefill_s is not None:
        text += f" and {arrival.prefill_s / MILLI:g} ms of prefill"
    return text


def _server(answer: ArrivalAnswer) -> str:
    """What the server may run at once."""
    text = f"at most {answer.most_running} requests run at once"
    return text + (f" ({answer.limit}; --max-running sets it)" if answer.limit else "")


def _ways(answer: ArrivalAnswer) -> str:
    """Both ways beside each other."""
    ways = (answer.without, answer.speculative)
    rows = [
        ["running requests", *(_cell(one.running_requests, 1) for one in ways)],
        ["tokens/s per user", *(_cell(one.per_user_tokens_per_s, 1) for one in ways)],
        ["s per request", *(_cell(one.decode_latency_s, 2) for one in ways)],
    ]
    if any(_waits(one) for one in ways):
        rows.append(["s of waiting", *(_cell(one.waiting_s, 2) for one in ways)])
    rows += [
        ["tokens/s", *(_cell(one.output_tokens_per_s, 0) for one in ways)],
        ["most requests/s", *(_cell(one.max_rate_per_s, 2) for one in ways)],
        ["share of that", *(_share(one.share_of_max_rate) for one in ways)],
    ]
    head = ["median (90 %)", "without speculation", "with speculation"]
    cells = [[row[0].ljust(18), *row[1:]] for row in (head, *rows)]
    text = table(cells, align="lll", gap=3)
    return text if fits(text) else table(cells, align="lll", gap=1)


def _waits(way: ServedWay) -> bool:
    """Whether requests wait for a place long enough to say so."""
    return way.waiting_s.median > _WAITING * way.decode_latency_s.median


def _verdict(answer: ArrivalAnswer) -> list[str]:
    """Who is faster here, who keeps up, and where speculation pays."""
    lines = []
    for way, name in ((answer.without, "without"), (answer.speculative, "with")):
        if not way.keeps_up:
            lines.append(
                labelled(
                    "overloaded",
                    f"{name} speculation {number(way.max_rate_per_s.median)} requests/s are served; "
                    "the others wait without end",
                )
            )
        elif way.probability_keeps_up < 0.995:
            lines.append(
                labelled(
                    "keeps up",
                    f"{name} speculation with probability {probability(way.probability_keeps_up)}",
                )
            )
    if answer.speedup is not None:
        gain = answer.speedup
        what = f"{with_interval(gain)} in the time of a request; faster than no speculation: "
        if math.isinf(gain.median):
            what = "only speculation keeps up; faster than no speculation: "
        elif gain.median == 0.0:
            what = "only no speculation keeps up; faster than that: "
        lines.append(labelled("speed-up", what + probability(answer.probability_faster)))
    return [*lines, labelled("it pays", _pays(answer))]


def _pays(answer: ArrivalAnswer) -> str:
    """Rates at which speculation makes requests faster."""
    starts, stops = answer.pays_from_per_s, answer.pays_to_per_s
    if math.isinf(starts.median):
        return "at no arrival rate: without speculation requests are faster at every one"
    if starts.median == 0.0 and math.isinf(stops.median):
        text = "at every arrival rate that can be served: no crossover"
        if math.isfinite(stops.low):
            text += f" (90 %: none, or one above {_rate(stops.low)} requests/s)"
        return text
    parts = []
    if starts.median > 0.0:
        parts.append(f"from {_bound(starts, none='the lightest load', endless='no rate')}")
    if math.isfinite(stops.median):
        bound = _bound(stops, none="no rate", endless="every rate")
        parts.append(f"up to {bound}, the crossover")
    tail = "; above, requests are faster without speculation" if math.isfinite(stops.median) else ""
    return " ".join(parts) + tail


def _bound(rate: Estimate, *, none: str, endless: str) -> str:
    """A rate with its interval; what a rate of 0 and an infinite one mean, in words."""
    text = f"{_rate(rate.median)} requests/s"
    if rate.high == rate.low:
        return text
    low = none if rate.low == 0.0 else _rate(rate.low)
    return f"{text} (90 %: {low} to {endless if math.isinf(rate.high) else _rate(rate.high)})"


def _rate(value: float) -> str:
    """A rate with three digits."""
    return f"{value:.3g}"


def _cell(estimate: Estimate, digits: int) -> str:
    """Median and bounds in a column."""
    if math.isinf(estimate.median):
        return "without end"
    text = number(estimate.median, digits)
    low, high = number(estimate.low, digits), number(estimate.high, digits)
    return text if low == high else f"{text} ({low} to {high})"


def _share(share: Estimate) -> str:
    """A share in per cent with its bounds; far beyond the limit, how many times it is."""
    if share.high > FAR_BEYOND:
        return f"{number(share.median, 0)} times"
    text = percent(share.median)
    low, high = percent(share.low), percent(share.high)
    return text if low == high else f"{text} ({low} to {high})"

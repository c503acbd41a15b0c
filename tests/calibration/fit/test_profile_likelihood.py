"""Profile intervals judge the rows by the noise that they were fitted with."""

import numpy as np

from calibration.evaluate import systems_to_evaluate
from calibration.fit.posterior_mode import fit_rows
from calibration.fit.profile_likelihood import profile_intervals


def test_a_known_spread_of_the_rows_widens_the_interval() -> None:
    (system,), _ = systems_to_evaluate([], ["vllm-20780-eagle1"])
    rows, measured = system.rows.rows, system.rows.log_speedup
    widths = []
    for spread in (0.0, 0.05):
        fitted = fit_rows(
            rows, measured, system.prior, spread_log_sd=np.full(measured.size, spread)
        )
        found = profile_intervals(rows, measured, system.prior, fitted, ["step_cost"])
        low, high = found["step_cost"]
        widths.append(np.log(high / low))
        laplace = 2 * 1.645 * np.sqrt(fitted.posterior.covariance[1, 1])
        assert 0.7 < widths[-1] / laplace < 1.4
    assert widths[1] > 1.2 * widths[0]

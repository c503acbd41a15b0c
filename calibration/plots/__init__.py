"""Pictures of fits, predictions, training runs and all-reduces, drawn with matplotlib without pyplot."""

from calibration.plots.allreduce import all_reduce_figure
from calibration.plots.fit import fit_figure
from calibration.plots.prediction import prediction_figure
from calibration.plots.style import save_figure
from calibration.plots.train import training_figure

__all__ = ["all_reduce_figure", "fit_figure", "prediction_figure", "save_figure", "training_figure"]

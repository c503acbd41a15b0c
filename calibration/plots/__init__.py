"""Pictures of a fit and of predictions, as files or as figures. matplotlib without pyplot."""

from calibration.plots.fit import fit_figure, plot_fit
from calibration.plots.prediction import plot_prediction, prediction_figure
from calibration.plots.style import figure_format, save_figure
from calibration.plots.train import plot_training, training_figure

__all__ = [
    "figure_format",
    "fit_figure",
    "plot_fit",
    "plot_prediction",
    "plot_training",
    "prediction_figure",
    "save_figure",
    "training_figure",
]

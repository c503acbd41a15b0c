"""Pictures of a fit and of predictions, as files or as figures. matplotlib without pyplot."""

from calibration.plots.figure_file import figure_format, save_figure
from calibration.plots.fit_plot import fit_figure, plot_fit

__all__ = ["figure_format", "fit_figure", "plot_fit", "save_figure"]

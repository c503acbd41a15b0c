"""Pictures show what was measured and predicted, and files of them are written whole or not at all."""

import csv
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from numpy.typing import NDArray

from calibration import plots
from calibration.fit.fit import fit
from calibration.plots import fit_figure, prediction_figure, save_figure
from calibration.plots.fit import point_axis, point_groups, side_by_side, varying
from calibration.plots.prediction import prediction_lines
from calibration.plots.style import CATEGORIES, ordered_colours
from calibration.points.arrays import SystemRows, system_rows, with_expert_counts
from calibration.points.packaged import packaged_table
from calibration.points.reading import read_points
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError
from specmodel.files import OutputError
from specmodel.prediction import predict
from specmodel.question import AcceptLength, Configuration, Estimate, Question

Array = NDArray[np.float64]

HEADER = "accept_length,throughput,baseline,num_steps,batch_size\n"


@cache
def fitted(path: Path) -> tuple[Calibration, SystemRows]:
    rows = system_rows(with_expert_counts(read_points(path).frame))
    return fit(path, profile=False), rows


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Calibration, SystemRows]:
    bench = tmp_path_factory.mktemp("reference") / "bench.csv"
    bench.write_text(HEADER + "2.1,82.3,90.0,5,1\n")
    return fitted(bench)


@pytest.fixture(scope="module")
def depth_sweep() -> tuple[Calibration, SystemRows]:
    return fitted(packaged_table("vllm-20780-eagle3").path)


def asked(
    accept_length: float, num_steps: float | None, baseline: float | None = None, **rest: float
) -> Question:
    return Question(
        accept_length=AcceptLength.exact(accept_length),
        configuration=Configuration(num_steps=num_steps, **rest),
        baseline_tokens_per_s=baseline,
    )


def drawn(calibration: Calibration, questions: list[Question], best: int | None = None) -> Figure:
    return prediction_figure(calibration, predict(calibration, questions), best=best)


def xy(line: Line2D) -> tuple[Array, Array]:
    return np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)


def dots(axes: Axes, *markers: str) -> tuple[Array, Array]:
    """Everything drawn with one of these markers, in the order of drawing."""
    found = [xy(line) for line in axes.lines if line.get_marker() in markers]
    empty = [(np.array([]), np.array([]))]
    across, up = zip(*(found or empty), strict=True)
    return np.concatenate(across), np.concatenate(up)


def curves(axes: Axes) -> list[tuple[Array, Array]]:
    return [xy(line) for line in axes.lines if np.size(line.get_xdata()) > 2]


def bars(axes: Axes) -> list[Array]:
    """Ends of every error bar."""
    return [
        np.asarray(segment)
        for collection in axes.collections
        if isinstance(collection, LineCollection)
        for segment in collection.get_segments()
    ]


def labels(figure: Figure) -> list[str]:
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    return [text.get_text() for legend in legends if legend for text in legend.get_texts()]


class TestFitFigure:
    def test_measured_speedups_are_those_of_the_file(
        self, depth_sweep: tuple[Calibration, SystemRows]
    ) -> None:
        with packaged_table("vllm-20780-eagle3").path.open(encoding="utf-8") as lines:
            table = [row for row in csv.DictReader(lines) if row["accept_length"]]
        expected = [
            float(row["output_tokens_per_s"]) / float(row["baseline_tokens_per_s"]) for row in table
        ]
        figure = fit_figure(*depth_sweep)
        measured, _ = dots(figure.axes[0], "o", "^")
        np.testing.assert_allclose(np.sort(measured), np.sort(expected))
        assert figure.axes[0].get_xlabel() == "measured speed-up (ratio of tok/s)"
        assert figure.axes[0].get_ylabel() == "predicted speed-up"

    def test_residuals_are_measured_over_predicted(
        self, depth_sweep: tuple[Calibration, SystemRows]
    ) -> None:
        figure = fit_figure(*depth_sweep)
        measured, predicted = dots(figure.axes[0], "o")
        _, residual = dots(figure.axes[1], "o")
        np.testing.assert_allclose(residual, 100 * (measured / predicted - 1))
        assert figure.axes[1].get_ylabel() == "residual (%)"
        rms = np.sqrt(np.mean(residual**2))
        assert f"6 points fitted, rms residual {rms:.1f} %" in figure.get_suptitle()
        assert "Llama-3.1-8B" in figure.get_suptitle()

    def test_identity_line_is_in_the_middle_of_its_bands(
        self, depth_sweep: tuple[Calibration, SystemRows]
    ) -> None:
        axes = fit_figure(*depth_sweep).axes[0]
        across, up = next(xy(line) for line in axes.lines if line.get_linestyle() == "-")
        np.testing.assert_array_equal(across, up)
        assert tuple(across) == axes.get_xlim() == axes.get_ylim()
        shares = sorted(
            round(float(corner[1] / corner[0]), 4)
            for band in axes.collections[:2]
            for corner in np.unique(np.asarray(band.get_paths()[0].vertices), axis=0)
        )
        assert sorted(set(shares)) == [0.9, 0.95, 1.05, 1.1]

    def test_depth_is_the_axis_where_only_depth_varies(
        self, depth_sweep: tuple[Calibration, SystemRows]
    ) -> None:
        axes = fit_figure(*depth_sweep).axes[1]
        assert axes.get_xlabel() == "draft depth (tokens)"
        assert [tick.get_text() for tick in axes.get_xticklabels()] == list("234567")

    def test_trees_and_chains_have_markers_of_their_own(self) -> None:
        path = packaged_table("specbundle-kimi-k2").path
        with path.open(encoding="utf-8") as lines:
            trees = [float(row["topk"]) > 1 for row in csv.DictReader(lines)]
        figure = fit_figure(*fitted(path))
        assert dots(figure.axes[0], "^")[0].size == sum(trees)
        assert dots(figure.axes[0], "o")[0].size == len(trees) - sum(trees)
        assert figure.axes[1].get_xlabel() == "depth-topk-draft tokens"
        assert {"chain", "tree"} <= set(labels(figure))
        colours = {
            to_hex(line.get_color())
            for line in figure.axes[0].lines
            if line.get_marker() in {"o", "^"}
        }
        assert len(colours) == len(figure.axes[1].get_xticks())

    def test_batch_is_the_axis_and_context_the_colour_where_both_vary(self) -> None:
        figure = fit_figure(*fitted(packaged_table("rtx6kpro-kimi-k26-dcp4").path))
        axes = figure.axes[1]
        assert axes.get_xlabel() == "batch (requests)"
        ticks = [tick.get_text() for tick in axes.get_xticklabels()]
        assert ticks == ["1", "2", "4", "8", "16", "32", "64", "128"]
        assert figure.legends[0].get_title().get_text() == "context (tokens)"
        assert [text.get_text() for text in figure.legends[0].get_texts()] == [
            *("0", "16k", "32k", "64k", "128k")
        ]

    def test_single_point_shows_its_interval(
        self, reference: tuple[Calibration, SystemRows]
    ) -> None:
        figure = fit_figure(*reference)
        measured, predicted = dots(figure.axes[0], "o")
        np.testing.assert_allclose(measured, 82.3 / 90)
        (bar,) = bars(figure.axes[0])
        assert bar[0, 1] < predicted[0] < bar[1, 1]
        low, high = figure.axes[0].get_xlim()
        assert low < bar[0, 1] < bar[1, 1] < high
        assert "1 point fitted, residual" in figure.get_suptitle()
        assert "90 % interval" in labels(figure)

    def test_many_points_show_no_intervals(self) -> None:
        figure = fit_figure(*fitted(packaged_table("specbundle-kimi-k2").path))
        assert bars(figure.axes[0]) == []
        assert "90 % interval" not in labels(figure)

    def test_every_point_is_in_view(self) -> None:
        figure = fit_figure(*fitted(packaged_table("rtx6kpro-kimi-k26-dcp4").path))
        for axes in figure.axes:
            across, up = dots(axes, "o", "^")
            assert np.all((across > axes.get_xlim()[0]) & (across < axes.get_xlim()[1]))
            assert np.all((up > axes.get_ylim()[0]) & (up < axes.get_ylim()[1]))

    def test_rows_in_another_order_give_the_same_predictions(
        self, depth_sweep: tuple[Calibration, SystemRows]
    ) -> None:
        calibration, rows = depth_sweep
        backwards = system_rows(rows.frame.iloc[::-1])
        for panel in (0, 1):
            one, other = (
                sorted(zip(*dots(fit_figure(calibration, some).axes[panel], "o"), strict=True))
                for some in (rows, backwards)
            )
            np.testing.assert_allclose(one, other)


class TestPointGroups:
    def test_verified_tokens_of_chains_do_not_count_as_varying(self) -> None:
        chains = [Configuration(num_steps=steps) for steps in (1, 2)]
        trees = [Configuration(num_steps=2, topk=2, num_draft_tokens=n) for n in (4, 6)]
        assert varying(chains) == ("num_steps",)
        assert varying(trees) == ("num_draft_tokens",)
        assert varying(chains[:1]) == ()

    def test_points_of_one_value_do_not_lie_on_one_another(self) -> None:
        known = [Configuration(num_steps=steps) for steps in (7, 3)]
        position = side_by_side(point_axis(known, np.array([0, 0, 1, 0, 1])).level)
        assert np.unique(position).size == 5
        np.testing.assert_array_equal(np.round(position), [1, 1, 0, 1, 0])

    def test_quantity_that_is_not_stated_has_a_tick_of_its_own(self) -> None:
        known = [Configuration(num_steps=3, batch_size=batch) for batch in (8.0, None)]
        assert point_axis(known, np.array([0, 1])).names == ["?", "8"]

    def test_every_configuration_has_its_colour(self) -> None:
        known = [
            Configuration(num_steps=k, topk=t, num_draft_tokens=6) for k in (3, 5) for t in (1, 2)
        ]
        groups, colours = point_groups(known, np.array([3, 0, 2, 1]))
        assert len(set(colours)) == 4
        assert [groups.names[index] for index in groups.level] == [
            *("5-2-6", "3-1-6", "5-1-6", "3-2-6")
        ]

    def test_many_values_are_not_all_named(self) -> None:
        known = [
            Configuration(num_steps=3, batch_size=batch, context_tokens=context)
            for batch in (1, 2)
            for context in range(0, 20_000, 1_000)
        ]
        groups, colours = point_groups(known, np.arange(len(known)))
        assert len(colours) == 20
        assert sum(name != "" for name in groups.names) <= 8

    def test_ordered_colours_grow_lighter(self) -> None:
        for count in (1, 2, 10, 40):
            weights = np.array([0.2126, 0.7152, 0.0722])
            light = [weights @ mpl.colors.to_rgb(colour) for colour in ordered_colours(count)]
            assert light == sorted(light)
            assert len(light) == count
            assert max(light) < 0.75  # visible on white
        assert len(set(CATEGORIES)) == len(CATEGORIES)


class TestPredictionFigure:
    def test_axes_say_quantity_and_unit(self, reference: tuple[Calibration, SystemRows]) -> None:
        figure = drawn(reference[0], [asked(2.75, 5, batch_size=1)])
        (axes,) = figure.axes
        assert axes.get_xlabel() == "accept length (tokens/round, bonus included)"
        assert axes.get_ylabel() == "throughput (tok/s)"
        assert "1 point; depth 5, batch 1" in figure.get_suptitle()
        assert "no speculation: 90 tok/s" in labels(figure)

    def test_line_goes_from_one_to_the_longest_path_and_no_further(
        self, reference: tuple[Calibration, SystemRows]
    ) -> None:
        depths = (1, 2, 5, 10)
        figure = drawn(reference[0], [asked(1.8, depth, batch_size=1) for depth in depths])
        for depth, (across, _) in zip(depths, curves(figure.axes[0]), strict=True):
            assert (across[0], across[-1]) == (1, depth + 1)

    def test_verified_tokens_bound_the_path_of_a_tree(self) -> None:
        prior = Calibration.from_prior()
        question = asked(2.0, 7, topk=2, num_draft_tokens=4)
        (line,) = prediction_lines(prior, predict(prior, [question])).lines
        assert line.longest == 4

    def test_block_drafter_reaches_beyond_its_steps(self) -> None:
        prior = Calibration.from_prior()
        question = asked(5.0, 1, num_draft_tokens=8)
        (line,) = prediction_lines(prior, predict(prior, [question])).lines
        assert line.longest == 8

    def test_unknown_depth_shows_as_much_as_matters(self) -> None:
        prior = Calibration.from_prior()
        question = asked(2.75, None)
        (line,) = prediction_lines(prior, predict(prior, [question])).lines
        assert 2.75 < line.longest < 6
        assert line.break_even.high < line.longest

    @pytest.mark.parametrize("depths", [(5,), (3, 5), tuple(range(1, 11))])
    def test_break_even_is_marked_where_the_line_crosses_the_baseline(
        self, reference: tuple[Calibration, SystemRows], depths: tuple[int, ...]
    ) -> None:
        figure = drawn(reference[0], [asked(1.7, depth, batch_size=1) for depth in depths])
        at, level = dots(figure.axes[0], "D")
        np.testing.assert_array_equal(level, 90.0)
        crossing = [
            np.interp(90.0, up, across)
            for across, up in curves(figure.axes[0])
            if up[0] < 90 < up[-1]
        ]
        assert len(at) == len(crossing) >= 1
        np.testing.assert_allclose(at, crossing, rtol=2e-3)

    def test_break_even_of_the_reference_case(
        self, reference: tuple[Calibration, SystemRows]
    ) -> None:
        figure = drawn(reference[0], [asked(2.75, 5, batch_size=1)])
        at, _ = dots(figure.axes[0], "D")
        assert at == pytest.approx(2.30, abs=0.05)

    def test_break_even_out_of_reach_is_not_drawn_and_said(
        self, reference: tuple[Calibration, SystemRows]
    ) -> None:
        question = asked(1.5, 1, batch_size=1)
        (answer,) = predict(reference[0], [question])
        never = replace(answer, break_even_accept_length=Estimate(median=2.31, low=2.1, high=2.5))
        figure = prediction_figure(reference[0], [never])
        assert dots(figure.axes[0], "D")[0].size == 0
        assert "break-even 2.31: above the most, 2" in labels(figure)

    def test_answer_is_a_point_with_its_interval_at_the_accept_length(
        self, reference: tuple[Calibration, SystemRows]
    ) -> None:
        uncertain = replace(
            asked(2.9, 5, batch_size=1),
            accept_length=AcceptLength(
                estimate=Estimate(median=2.9, low=2.7, high=3.1), log_sd=0.04
            ),
        )
        (answer,) = predict(reference[0], [uncertain])
        assert answer.output_tokens_per_s is not None
        axes = drawn(reference[0], [uncertain]).axes[0]
        across, up = dots(axes, "o")
        np.testing.assert_allclose((across[-1], up[-1]), (2.9, answer.output_tokens_per_s.median))
        horizontal, vertical = bars(axes)
        np.testing.assert_allclose(horizontal[:, 0], [2.7, 3.1])
        np.testing.assert_allclose(
            vertical[:, 1], [answer.output_tokens_per_s.low, answer.output_tokens_per_s.high]
        )
        assert [2.9, 2.9] in [list(xy(line)[0]) for line in axes.lines]
        (span,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
        assert (span.get_x(), span.get_x() + span.get_width()) == pytest.approx((2.7, 3.1))

    def test_answers_lie_on_their_lines(self, depth_sweep: tuple[Calibration, SystemRows]) -> None:
        found = [2.36, 2.79, 3.08, 3.32, 3.46, 3.54]
        questions = [
            asked(accept, depth, batch_size=1)
            for accept, depth in zip(found, range(2, 8), strict=True)
        ]
        axes = drawn(depth_sweep[0], questions).axes[0]
        across, up = dots(axes, "o")
        on_line = [
            np.interp(accept, *curve) for accept, curve in zip(across, curves(axes), strict=True)
        ]
        np.testing.assert_allclose(up, on_line, rtol=1e-3)

    def test_measured_points_of_the_same_configuration_are_drawn(
        self, reference: tuple[Calibration, SystemRows]
    ) -> None:
        same = drawn(reference[0], [asked(2.75, 5, batch_size=1)]).axes[0]
        np.testing.assert_allclose(np.ravel(dots(same, "x")), [2.1, 82.3])
        other = drawn(reference[0], [asked(2.75, 4, batch_size=1)]).axes[0]
        assert dots(other, "x")[0].size == 0
        scaled = drawn(reference[0], [asked(2.75, 5, baseline=180.0, batch_size=1)]).axes[0]
        np.testing.assert_allclose(np.ravel(dots(scaled, "x")), [2.1, 164.6])

    def test_speedup_is_shown_without_a_baseline(self) -> None:
        axes = drawn(Calibration.from_prior(), [asked(2.75, 5)]).axes[0]
        assert axes.get_ylabel() == "speed-up (ratio)"
        np.testing.assert_array_equal(dots(axes, "D")[1], [1.0])

    def test_speedup_is_shown_where_questions_have_several_baselines(self) -> None:
        questions = [
            asked(2.0, 3, baseline=rate, batch_size=batch)
            for rate, batch in ((90.0, 1), (500.0, 8))
        ]
        figure = drawn(Calibration.from_prior(), questions)
        assert [axes.get_ylabel() for axes in figure.axes] == ["speed-up (ratio)"]
        assert {"batch 1", "batch 8"} <= {text.get_text() for text in figure.axes[0].texts}

    def test_depths_have_a_panel_with_the_best_one_marked(
        self, depth_sweep: tuple[Calibration, SystemRows]
    ) -> None:
        found = [2.36, 2.79, 3.08, 3.32, 3.46, 3.54]
        questions = [
            asked(accept, depth, batch_size=1)
            for accept, depth in zip(found, range(2, 8), strict=True)
        ]
        figure = drawn(depth_sweep[0], questions)
        below = figure.axes[1]
        assert below.get_xlabel() == "draft depth (tokens)"
        assert below.get_ylabel() == "throughput (tok/s)"
        answers = predict(depth_sweep[0], questions)
        medians = [one.output_tokens_per_s.median for one in answers if one.output_tokens_per_s]
        rings = [xy(line) for line in below.lines if line.get_color() == "none"]
        (ring,) = rings
        assert (ring[0][0], ring[1][0]) == (2 + int(np.argmax(medians)), max(medians))
        assert ring[0][0] == 4  # the fastest measured
        given = drawn(depth_sweep[0], questions, best=0).axes[1]
        assert [xy(line)[0][0] for line in given.lines if line.get_color() == "none"] == [2]

    def test_each_line_is_named(self, reference: tuple[Calibration, SystemRows]) -> None:
        figure = drawn(reference[0], [asked(1.7, depth, batch_size=1) for depth in range(1, 11)])
        names = {text.get_text() for text in figure.axes[0].texts}
        assert names == {"depth 1", *map(str, range(2, 11))}

    def test_no_speculation_among_the_depths_is_no_line(
        self, reference: tuple[Calibration, SystemRows]
    ) -> None:
        figure = drawn(reference[0], [asked(1.0, 0, batch_size=1), asked(1.7, 1, batch_size=1)])
        figure.draw_without_rendering()
        assert {text.get_text() for text in figure.axes[0].texts} == {"depth 1"}

    def test_no_question_is_refused(self) -> None:
        with pytest.raises(ParameterError, match="questions must be one question or more"):
            prediction_figure(Calibration.from_prior(), ())


@pytest.fixture(scope="module")
def figures(
    reference: tuple[Calibration, SystemRows], tmp_path_factory: pytest.TempPathFactory
) -> list[Figure]:
    kimi = fitted(packaged_table("rtx6kpro-kimi-k26-dcp4").path)
    bench = tmp_path_factory.mktemp("look") / "bench.csv"
    bench.write_text(
        "accept_length,throughput,baseline,num_steps,topk,num_draft_tokens\n"
        "2.1,182,90,3,1,4\n2.2,170,90,5,1,6\n2.4,165,90,5,4,8\n"
    )
    one = [asked(2.75, 5, batch_size=1)]
    ten = [asked(1.7, depth, batch_size=1) for depth in range(1, 11)]
    trees = bench.with_name("trees.csv")
    trees.write_text(bench.read_text().replace(",1,", ",2,"))
    fits = [fit_figure(*each) for each in (kimi, fitted(bench), fitted(trees))]
    return [*fits, drawn(reference[0], one), drawn(reference[0], ten)]


class TestLook:
    def test_text_is_readable_in_one_column(self, figures: list[Figure]) -> None:
        for figure in figures:
            assert figure.get_figwidth() * 25.4 == pytest.approx(80.0)
            sizes = [
                text.get_fontsize()
                for text in figure.findobj(Text)
                if isinstance(text, Text) and text.get_text()
            ]
            assert min(map(float, sizes)) >= 8

    def test_legends_cover_no_panel(self, figures: list[Figure]) -> None:
        for figure in figures:
            figure.draw_without_rendering()
            panels = [axes.get_window_extent() for axes in figure.axes]
            legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
            boxes = [legend.get_window_extent() for legend in legends if legend]
            assert boxes
            for box in boxes:
                assert box.x1 <= figure.bbox.x1
                # Frames may touch by the width of a line.
                assert all(panel.y0 >= box.y1 - 1 or panel.y1 <= box.y0 + 1 for panel in panels)

    def test_everything_is_inside_the_picture(self, figures: list[Figure]) -> None:
        for figure in figures:
            figure.draw_without_rendering()
            box = figure.get_tightbbox()
            assert box.x0 > -0.02
            assert box.y0 > -0.02
            assert box.x1 < figure.get_figwidth() + 0.02
            assert box.y1 < figure.get_figheight() + 0.02

    def test_users_settings_neither_matter_nor_change(
        self, reference: tuple[Calibration, SystemRows]
    ) -> None:
        with mpl.rc_context({"font.size": 31.0, "axes.titlesize": 40.0}):
            figure = fit_figure(*reference)
            assert mpl.rcParams["font.size"] == 31.0
        assert figure.axes[0].xaxis.label.get_fontsize() == 8


class TestFiles:
    @pytest.mark.parametrize(
        ("name", "start"),
        [
            ("fit.png", b"\x89PNG"),
            ("fit.svg", b"<?xml"),
            ("fit.pdf", b"%PDF"),
            ("F.PNG", b"\x89PNG"),
        ],
    )
    def test_suffix_chooses_the_type(
        self, reference: tuple[Calibration, SystemRows], tmp_path: Path, name: str, start: bytes
    ) -> None:
        save_figure(fit_figure(*reference), tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
        assert [file.name for file in tmp_path.iterdir()] == [name]

    @pytest.mark.parametrize("name", ["fit.jpg", "fit", "fit.png.bak", ""])
    def test_other_suffixes_are_refused_in_one_line(
        self, reference: tuple[Calibration, SystemRows], tmp_path: Path, name: str
    ) -> None:
        with pytest.raises(ParameterError) as refused:
            save_figure(fit_figure(*reference), tmp_path / name)
        assert ".png, .svg or .pdf" in str(refused.value)
        assert "\n" not in str(refused.value)
        questions = [asked(2.75, 5, batch_size=1)]
        with pytest.raises(ParameterError):
            save_figure(drawn(reference[0], questions), tmp_path / name)
        assert list(tmp_path.iterdir()) == []

    def test_folder_that_is_a_file_is_refused_in_one_line(
        self, reference: tuple[Calibration, SystemRows], tmp_path: Path
    ) -> None:
        (tmp_path / "folder").write_text("")
        with pytest.raises(OutputError, match="cannot be written") as refused:
            save_figure(fit_figure(*reference), tmp_path / "folder" / "fit.png")
        assert "\n" not in str(refused.value)

    def test_old_file_is_kept_when_rendering_fails(
        self,
        reference: tuple[Calibration, SystemRows],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        target = tmp_path / "prediction.png"
        target.write_bytes(b"old")

        def fails(*_: object, **__: object) -> None:
            raise RuntimeError

        monkeypatch.setattr(Figure, "savefig", fails)
        questions = [asked(2.75, 5, batch_size=1)]
        with pytest.raises(RuntimeError):
            save_figure(drawn(reference[0], questions), target)
        with pytest.raises(RuntimeError):
            save_figure(fit_figure(*reference), target)
        assert target.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [target]

    def test_equal_figures_make_equal_files(
        self, reference: tuple[Calibration, SystemRows], tmp_path: Path
    ) -> None:
        for name in ("one.svg", "two.svg", "one.pdf", "two.pdf"):
            save_figure(fit_figure(*reference), tmp_path / name)
        for kind in ("svg", "pdf"):
            one, two = ((tmp_path / f"{name}.{kind}").read_bytes() for name in ("one", "two"))
            assert one == two

    def test_any_figure_can_be_saved(self, tmp_path: Path) -> None:
        save_figure(Figure(), tmp_path / "empty.svg")
        assert (tmp_path / "empty.svg").read_text().rstrip().endswith("</svg>")

    def test_pyplot_is_not_imported(self) -> None:
        texts = [path.read_text("utf-8") for path in Path(plots.__file__).parent.glob("*.py")]
        imports = [line for text in texts for line in text.splitlines() if "import " in line]
        assert any("matplotlib" in line for line in imports)
        assert not any("pyplot" in line for line in imports)

"""What the commands share: values of options, files that are read and written, where an answer goes."""

import contextlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from specmodel.calibration import Calibration
from specmodel.files import STANDARD_OUTPUT, OutputError
from specmodel.question import BOUNDS
from specmodel.text_layout import wrapped
from specmodel.units import MEBI

Decorator = Callable[[Any], Any]

DEFAULT_CALIBRATION: Final = "calibration.json"
PACKAGED_PRIOR: Final = "packaged prior"
DEEPEST: Final = int(BOUNDS["num_steps"].most)
"""Deepest draft that is answered for. [tokens]"""

_MOST_TOKENS = int(BOUNDS["num_draft_tokens"].most)
_MOST_STEPS = 10**9
_LARGE_BYTES = 16 * MEBI
_SEPARATOR = re.compile(r"\s*[,;]\s*|\s+")
_PICTURES = (".png", ".svg", ".pdf")
_STANDARD_INPUT = "-"
_STANDARD_STREAMS = {1: "standard output", 2: "standard error"}


class InputFile(click.Path):
    """A file or folder to read; ``-`` is standard input."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; standard input as a file, since readers look at files more than once."""
        if str(value) == _STANDARD_INPUT:
            return _standard_input(ctx or click.get_current_context())
        return super().convert(value, param, ctx)


INPUT_FILE: Final = InputFile(path_type=Path)


class NameOrFile(click.ParamType[str]):
    """A name, or the path of a file; ``-`` is standard input."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name or the path."""
        del param
        if value != _STANDARD_INPUT:
            return str(value)
        return str(_standard_input(ctx or click.get_current_context()))


def _standard_input(context: click.Context) -> Path:
    """A file that holds all of standard input until the command ends."""
    file: Path | None = context.meta.get(__name__)
    if file is not None:
        return file
    import shutil
    import tempfile

    folder = context.find_root().with_resource(tempfile.TemporaryDirectory(prefix="specmodel-"))
    file = Path(folder, "stdin")
    with file.open("w+b") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        if sys.platform == "linux":  # there the device opens the file anew: messages can name it
            os.dup2(copy.fileno(), 0)
            file = Path("/dev/stdin")
    context.meta[__name__] = file
    return file


class Number(click.FloatRange):
    """A finite number inside the bounds of a quantity of `specmodel.question.BOUNDS`.

    With `from_below`, what is below the bounds is left to the code that knows why.
    """

    def __init__(self, quantity: str, *, from_below: bool = False) -> None:
        self.bounds = BOUNDS[quantity]
        super().__init__(min=None if from_below else self.bounds.least, max=self.bounds.most)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or refuse the text in one line."""
        try:
            number = float(str(value))
        except ValueError:
            hint = "; decimals need a point" if "," in str(value) else ""
            self.fail(f"{value!r} is not a number{hint}", param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        if number > self.bounds.most or (self.min is not None and number < self.min):
            self.fail(f"{value!r} is outside {self.bounds}", param, ctx)
        return number

    def _describe_range(self) -> str:
        """The bounds, for the help."""
        return str(self.bounds)


class Until(click.ParamType[float | None]):
    """A step, or ``end`` (None) for the one that a log tells."""

    name = "end|STEP"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        """Return the step, or refuse the text in one line."""
        if value is None or value == "end":
            return None
        try:
            step = int(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither a step nor 'end'", param, ctx)
        if not 1 <= step <= _MOST_STEPS:
            self.fail(f"{value!r} is outside 1 to {_MOST_STEPS}", param, ctx)
        return float(step)


class ServedPairs(click.ParamType[tuple[float, float]]):
    """Two accept lengths, ``LOGGED:SERVED``."""

    name = "logged:served"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Return the pair, or refuse the text in one line."""
        if isinstance(value, tuple):
            return value
        logged, separator, served = str(value).partition(":")
        number = Number("accept_length")
        if not separator:
            self.fail(f"{value!r} is no pair such as 2.75:2.4", param, ctx)
        return number.convert(logged, param, ctx), number.convert(served, param, ctx)


class Depths(click.ParamType[tuple[int, ...]]):
    """Depths of ``10`` or ``1:10``, rising."""

    name = "depths"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the depths, or refuse the text in one line."""
        if isinstance(value, tuple):
            return value
        first, separator, last = value.partition(":")
        try:
            low = int(first)
            high = int(last) if separator else low
        except ValueError:
            reason = f"{value!r} is neither a depth such as 10 nor a range such as 1:10"
            self.fail(reason, param, ctx)
        if low < 1:
            reason = (
                f"{value!r} begins at {low}, and a depth is at least 1; depth 0 is no speculation, its "
                "speed-up is 1, and it is among the candidates of every range"
            )
        elif high < low:
            reason = f"{value!r} ends before it begins"
        elif high > DEEPEST:
            reason = f"{value!r} is deeper than {DEEPEST}, the deepest that is modelled"
        else:
            reason = ""
        if reason:
            self.fail(reason, param, ctx)
        return tuple(range(low, high + 1))


class Accuracies(click.ParamType[tuple[float, ...]]):
    """Numbers of a list such as ``.742,.47``; whether they are lawful is checked where they are used."""

    name = "accuracies"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Return the numbers, or refuse the text in one line."""
        if isinstance(value, tuple):
            return value
        text = value.strip()
        if not text:
            self.fail("an empty list; give one accuracy per depth", param, ctx)
        if len({separator.strip() for separator in _SEPARATOR.findall(text)}) > 1:
            reason = f"{value!r} has several separators; decimals need a point, and commas separate"
            self.fail(reason, param, ctx)
        numbers = []
        for place, part in enumerate(_SEPARATOR.split(text), start=1):
            if not part:
                reason = f"entry {place} of {value!r} is empty; give one accuracy per depth"
                self.fail(reason, param, ctx)
            try:
                numbers.append(float(part))
            except ValueError:
                hint = "; write it as a fraction, such as 0.742" if part.endswith("%") else ""
                self.fail(f"{part!r} in {value!r} is not a number{hint}", param, ctx)
        if len(numbers) > DEEPEST:
            reason = f"{len(numbers)} accuracies; the deepest that is modelled is {DEEPEST}"
            self.fail(reason, param, ctx)
        return tuple(numbers)


class Picture(click.ParamType[Path]):
    """File of a picture, refused before anything is computed where its type is not known."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path."""
        if str(value) != STANDARD_OUTPUT and not str(value).lower().endswith(_PICTURES):
            self.fail(f"{value!r} must end in {', '.join(_PICTURES)}", param, ctx)
        return Path(value)


class Change(click.ParamType[tuple[str, str]]):
    """Key and text of ``KEY=VALUE``."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the pair, or refuse the text in one line."""
        if isinstance(value, tuple):
            return value
        key, separator, text = value.partition("=")
        if not separator or not text.strip():
            self.fail(f"{value[:60]!r} is not KEY=VALUE", param, ctx)
        return key.strip(), NameOrFile().convert(text.strip(), param, ctx)


def with_options(options: Sequence[Decorator], command: Any) -> Any:
    """A command with options before those it has, in the order in which its help shows them."""
    for option in reversed(options):
        command = option(command)
    return command


load_options = partial(
    with_options,
    [
        click.option(
            "--topk",
            type=click.IntRange(1, _MOST_TOKENS),
            help="Branching of the draft tree; 1 = chain.",
        ),
        click.option(
            "--num-draft-tokens",
            type=click.IntRange(1, _MOST_TOKENS),
            help="Verified tokens, root included; needed where --topk is above 1.",
        ),
        click.option("--batch-size", type=Number("batch_size"), help="Running requests."),
        click.option("--context-tokens", type=Number("context_tokens"), help="Context length."),
    ],
)
"""Tree and load of a configuration; each command has its own --depth."""

MATCHED: Final = {"training": None, "training-matched": True, "training-unmatched": False}
"""Whether the served prompts are like the data of a training log, as --accuracy-from says it."""

LOAD: Final = ("topk", "num_draft_tokens", "batch_size", "context_tokens")
"""Parameters of `load_options`."""

calibration_option = click.option(
    "--calibration",
    type=INPUT_FILE,
    help=f"Written by `specmodel fit`.  [default: ./{DEFAULT_CALIBRATION}, else the packaged prior]",
)
plot_option = click.option(
    "--plot", metavar="FILE", type=Picture(), help="Draw it, as .png, .svg or .pdf; - is PNG."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")


def chosen_calibration(path: Path | None) -> tuple[Calibration, str]:
    """Return the calibration that was named, the one in this folder, or the packaged prior; its source."""
    if path is None and not Path(DEFAULT_CALIBRATION).exists():
        return Calibration.from_prior(), PACKAGED_PRIOR
    chosen = Path(DEFAULT_CALIBRATION) if path is None else path
    return Calibration.load(chosen), str(chosen)


def show(
    answer: str | Mapping[str, Any],
    outputs: Iterable[Path | None] = (),
    *,
    indent: int | None = 1,
    end: str = "\n",
) -> None:
    """Print an answer, as text or as JSON; on standard error where an output is standard output."""
    text = answer if isinstance(answer, str) else json.dumps(answer, indent=indent, allow_nan=False)
    click.echo(text + end, nl=False, err=any(str(path) == STANDARD_OUTPUT for path in outputs))


def show_answer(
    found: Any,
    text: Callable[[Any], str],
    outputs: Iterable[Path | None] = (),
    *,
    as_json: bool,
    indent: int | None = 1,
    **more: object,
) -> None:
    """Print an answer as JSON, with more keys, or as its text."""
    if not as_json:
        show(text(found), outputs)
        return
    from calibration.report.as_json import answer_json

    show(answer_json(found, **more), outputs, indent=indent)


def say_drawn(plot: Path) -> None:
    """Say that a picture was written."""
    click.echo(f"Drawn: {named_output(plot)}", err=True)


def show_notes(notes: Iterable[str], first: str = "Note: ") -> None:
    """Print what to know beside an answer, on standard error."""
    for note in notes:
        click.echo(wrapped(note, first=first, indent=len(first)), err=True)


def named_output(path: Path) -> str:
    """What a file that was written is called in an answer."""
    return "standard output" if str(path) == STANDARD_OUTPUT else str(path)


@contextmanager
def progress_of(paths: Sequence[Path]) -> Iterator[Callable[[int], None] | None]:
    """Show the progress of reading some files; nothing, and nothing is loaded, where they are small.

    Yields what has to be told how many bytes have been read since it was told last.
    """
    if not any(map(_is_large, paths)):
        yield None
        return
    from calibration.report.progress import reading_progress

    with reading_progress(paths) as tell:
        yield tell


def _is_large(path: Path) -> bool:
    """Return whether a file may take a while; a folder may hold anything."""
    try:
        return path.is_dir() or path.stat().st_size > _LARGE_BYTES
    except (OSError, ValueError):  # ValueError: a zero byte in the path
        return False


def check_outputs(outputs: Sequence[Path | None], inputs: Sequence[Path | None]) -> None:
    """Refuse outputs that cannot be written, that are inputs, or that are one another.

    Raises `OutputError` before anything is computed or written.
    """
    wanted = [path for path in outputs if path is not None]
    for place, path in enumerate(wanted):
        reason, same, stream = "", False, ""
        twice = path in wanted[:place]
        if str(path) != STANDARD_OUTPUT:
            try:
                reason = _obstacle(path)
                same = any(_same(path, one) for one in inputs if one is not None)
                twice = any(_same(path, one) for one in wanted[:place])
                stream = _stream(path)
            except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
                reason = getattr(error, "strerror", None) or str(error)
        if reason:
            raise OutputError(
                path, f"cannot be written: {reason}; name a file in a folder that you can write to"
            )
        if same:
            raise OutputError(path, "is read by this command and would be lost; name another file")
        if twice:
            raise OutputError(path, "would be written twice; name two files")
        if stream:
            raise OutputError(path, f"is {stream}, where the report goes; name a file")


def _obstacle(path: Path) -> str:
    """Why no file can be written at a place; empty where one can."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        return "it is a folder"
    if _stream(path):  # a pipe has no folder
        return ""
    folder = target.parent
    if not folder.is_dir():
        return f"{folder} {'is no folder' if folder.exists() else 'does not exist'}"
    if not target.exists() and not os.access(folder, os.W_OK | os.X_OK):
        return f"no permission to write in {folder}"
    with contextlib.suppress(FileNotFoundError):
        target.lstat()  # a name may be too long
    return ""


def _same(path: Path, other: Path) -> bool:
    """Whether two paths are one file, which need not exist yet."""
    if os.path.realpath(path) == os.path.realpath(other):
        return True
    return path.exists() and other.exists() and path.samefile(other)


def _stream(path: Path) -> str:
    """Name of the standard stream that a path is; empty where it is none, or nowhere."""
    if not path.exists() or path.samefile(os.devnull):
        return ""
    status = path.stat()
    for descriptor, name in _STANDARD_STREAMS.items():
        try:
            if os.path.samestat(status, os.fstat(descriptor)):
                return name
        except OSError:  # closed
            continue
    return ""

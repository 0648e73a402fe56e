"""The command line: one file for each command, registered below.

Commands import torch and what else is heavy when they run, so that ``lossmith --help`` is there at once. A mistake of
the user ends with one plain sentence and exit code 2, and so does an error in a function of theirs that a command was
given; an error of ours keeps its traceback.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from traceback import walk_tb
from typing import Annotated

import typer

from lossmith import __version__
from lossmith.cli.align import align
from lossmith.cli.compare import STOPPED, compare
from lossmith.cli.console import show_warning
from lossmith.cli.data import list_datasets, make_predictions
from lossmith.cli.demo import demo
from lossmith.cli.explain import explain
from lossmith.cli.learn import learn
from lossmith.cli.losses import list_losses
from lossmith.cli.metrics import list_metrics
from lossmith.cli.plot_loss import plot_loss
from lossmith.cli.report import report
from lossmith.cli.reproduce import reproduce

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
data = typer.Typer(no_args_is_help=True, help="Data sets, and predictions of models trained on them.")

app.command("demo", epilog="Example: lossmith demo")(demo)
app.command("metrics", epilog="Example: lossmith metrics --kind binary")(list_metrics)
app.command("losses", epilog="Example: lossmith losses --kind binary")(list_losses)
app.command("learn", epilog="Example: lossmith learn f1 --predictions p.npz --out loss.safetensors")(learn)
app.command("align", epilog="Example: lossmith align --metric accuracy --loss ce --loss mse --predictions p.npz")(align)
app.command("explain", epilog="Example: lossmith explain my_metrics:points --kind multiclass")(explain)
app.command("compare", epilog="Example: lossmith compare table.csv --target bought --metric f1 --budget 5m")(compare)
app.command("report", epilog="Example: lossmith report runs/table-f1 -o report.html")(report)
app.command("plot-loss", epilog="Example: lossmith plot-loss --metric ap --loss ce --loss smooth_ap --out ap.png")(
    plot_loss
)
app.command("reproduce", epilog="Example: lossmith reproduce uniloss-mnist-ap --scale smoke")(reproduce)
app.add_typer(data, name="data", epilog="Example: lossmith data list")
data.command("list", epilog="Example: lossmith data list")(list_datasets)
data.command("predictions", epilog="Example: lossmith data predictions digits --out p.npz")(make_predictions)

# what the parser raises, click's ClickException: typer has it from click, or in a copy of its own
ParserError = typer.BadParameter.mro()[2]
# modules that come with an extra
EXTRAS = dict.fromkeys(("sklearn", "scipy", "matplotlib", "PIL", "joblib", "optuna", "jinja2"), "lab")

# module and function in which we call a function, or import a module, of the user
CALLS_OF_USERS_CODE = {
    ("lossmith.cli.align", "import_function"),
    ("lossmith.metrics.stacking", "_one"),
    ("lossmith.metrics.wrap", "__call__"),
    ("lossmith.tracing.recording", "run"),
    ("lossmith.tracing.recording", "_on_scores"),
}


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"lossmith {__version__}")
        raise typer.Exit


@app.callback(epilog="Example: lossmith demo")
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Turn the metric a model is judged by into the loss it is trained with."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit: with 0, or with 2 and a sentence after a mistake of the user."""
    warnings.showwarning = show_warning
    try:
        sys.exit(app(arguments, prog_name="lossmith", standalone_mode=False))
    except KeyboardInterrupt:
        sys.exit(STOPPED)
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        if sentence:  # nothing to say after the help that a bare `lossmith` shows
            print(f"lossmith: {sentence}", file=sys.stderr)
        sys.exit(2)


def _sentence(error: Exception) -> str | None:
    """What to tell the user about a mistake of theirs; None for an error that is not expected."""
    if isinstance(error, ParserError):
        return str(error.format_message())  # type: ignore[attr-defined]
    if isinstance(error, ModuleNotFoundError) and (package := str(error.name).partition(".")[0]) in EXTRAS:
        return f"this takes {package}, which comes with an extra: pip install 'lossmith[{EXTRAS[package]}]'."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    # from the first call to the one that failed
    frames = [
        (str(frame.f_globals.get("__name__")), frame.f_code, line) for frame, line in walk_tb(error.__traceback__)
    ]
    last_of_ours = max(index for index, (module, _, _) in enumerate(frames) if module.startswith("lossmith."))
    # our own checks speak to the user; a ValueError out of torch or numpy is a fault of ours: let it be seen
    if isinstance(error, ValueError) and last_of_ours == len(frames) - 1:
        return str(error)
    module, code, _ = frames[last_of_ours]
    if (module, code.co_name) not in CALLS_OF_USERS_CODE:
        return None
    places = [
        f" ({Path(code.co_filename).name}, line {line})"
        for module, code, line in frames[last_of_ours + 1 :]
        if not module.startswith("importlib")
    ]
    return f"your code failed with {type(error).__name__}: {error}{''.join(places[:1])}"

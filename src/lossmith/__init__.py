"""lossmith: the metric a model is judged by becomes the loss it is trained with.

Names are fetched when they are first used: the command line shows its help without waiting for torch.
"""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lossmith import metrics as metrics
    from lossmith import ranking as ranking
    from lossmith.alignment import Alignment as Alignment
    from lossmith.alignment import measure_alignment as measure_alignment
    from lossmith.combining import combine as combine
    from lossmith.lab.comparing.asking import compare as compare
    from lossmith.methods.ala import ALA as ALA
    from lossmith.methods.ala import adaptive_steps as adaptive_steps
    from lossmith.methods.bilevel import BilevelSurrogate as BilevelSurrogate
    from lossmith.methods.bilevel import bilevel_steps as bilevel_steps
    from lossmith.methods.reloss import ReLoss as ReLoss
    from lossmith.methods.reloss import learn as learn
    from lossmith.methods.uniloss import UniLoss as UniLoss
    from lossmith.normalising import normalise as normalise
    from lossmith.tracing import TracedLoss as TracedLoss
    from lossmith.tracing import trace as trace
    from lossmith.vocabulary import Kind as Kind
    from lossmith.vocabulary import Metric as Metric
    from lossmith.vocabulary import Predictions as Predictions
    from lossmith.weights import load as load
    from lossmith.weights import save as save
    from lossmith.weights import shipped as shipped

__version__ = _version("lossmith")

# where each public name lives; the same lines as above, for programs instead of type checkers
_HOMES = {
    "Alignment": "alignment",
    "measure_alignment": "alignment",
    "combine": "combining",
    "compare": "lab.comparing.asking",
    "ALA": "methods.ala",
    "adaptive_steps": "methods.ala",
    "BilevelSurrogate": "methods.bilevel",
    "bilevel_steps": "methods.bilevel",
    "ReLoss": "methods.reloss",
    "learn": "methods.reloss",
    "UniLoss": "methods.uniloss",
    "normalise": "normalising",
    "TracedLoss": "tracing",
    "trace": "tracing",
    "Kind": "vocabulary",
    "Metric": "vocabulary",
    "Predictions": "vocabulary",
    "load": "weights",
    "save": "weights",
    "shipped": "weights",
}
_MODULES = ("metrics", "ranking")
__all__ = [*_HOMES, *_MODULES]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _import_module(f"lossmith.{name}")
    if name in _HOMES:
        return getattr(_import_module(f"lossmith.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'lossmith' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

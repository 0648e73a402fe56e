"""The networks that can stand in for a metric.

To add one: write a class that derives from :class:`Surrogate` in a file of its own, and add a line to
:data:`SURROGATES`, by which saved losses are found again.
"""

from lossmith.surrogates.counts import CountsNetwork
from lossmith.surrogates.deep_sets import DeepSets
from lossmith.surrogates.pairs import PairLoss, RankLoss
from lossmith.surrogates.pointwise import PointwiseSurrogate, margin_loss, probability_network
from lossmith.surrogates.surrogate import Surrogate

__all__ = [
    "SURROGATES",
    "CountsNetwork",
    "DeepSets",
    "PairLoss",
    "PointwiseSurrogate",
    "RankLoss",
    "Surrogate",
    "margin_loss",
    "probability_network",
]

SURROGATES: dict[str, type[Surrogate]] = {
    "pointwise": PointwiseSurrogate,
    "counts": CountsNetwork,
    "pairs": PairLoss,
    "ranks": RankLoss,
    "deep_sets": DeepSets,
}

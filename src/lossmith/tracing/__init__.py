"""A metric's own code becomes a loss: :func:`trace`.

The code is run as it is, and watched (:mod:`~lossmith.tracing.recording`). It takes decisions on the outputs
(:mod:`~lossmith.tracing.decisions`); what each is worth shows when it is taken otherwise
(:mod:`~lossmith.tracing.gains`, by :mod:`~lossmith.tracing.lanes` and :mod:`~lossmith.tracing.sorted_lanes`); and what
it is worth makes the loss (:mod:`~lossmith.tracing.links`).
"""

from lossmith.tracing.explanation import Explanation
from lossmith.tracing.loss import TracedLoss, trace

__all__ = ["Explanation", "TracedLoss", "trace"]

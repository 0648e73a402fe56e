"""UniLoss and traced losses in milliseconds, forward and backward, one thread, beside a calibration in the same run.

    python benchmarks/uniloss.py [--json]

The rows of traced losses are those of benchmarks/tracing.py, which also says how to get the peers.
"""

from __future__ import annotations

import torch
from timing import Row, best_seconds, report

import tracing
from lossmith.methods.uniloss import UniLoss
from tracing import step


def uniloss_rows() -> list[Row]:
    torch.manual_seed(0)
    ten, hundred = (torch.randn(128, num_classes) for num_classes in (10, 100))
    targets_of_ten, targets_of_hundred = (torch.randint(num_classes, (128,)) for num_classes in (10, 100))
    scores, is_positive = torch.randn(128), (torch.arange(128) < 13).long()
    calls = {
        "UniLoss accuracy, 128 x 10": (step(UniLoss("accuracy"), ten, targets_of_ten), 0.5),
        "UniLoss accuracy, 128 x 100": (step(UniLoss("accuracy"), hundred, targets_of_hundred), 3.0),
        "UniLoss accuracy, 128 x 100, 20 rivals": (
            step(UniLoss("accuracy", num_rivals=20), hundred, targets_of_hundred),
            None,
        ),
        "UniLoss AP, 13 of 128 positive": (step(UniLoss("ap"), scores, is_positive), 1.0),
        "UniLoss macro F1, 128 x 10": (step(UniLoss("f1_macro"), ten, targets_of_ten), None),
        "UniLoss AUC, 13 of 128 positive": (step(UniLoss("auc"), scores, is_positive), None),
    }
    # one after the other: these are not peers that must share a neighbour's load
    return [Row(name, 1e3 * best_seconds(call), "ms", bar, is_at_least=False) for name, (call, bar) in calls.items()]


def measure() -> list[Row]:
    return [tracing.calibration_row(), *uniloss_rows(), *tracing.traced_rows()]


if __name__ == "__main__":
    report(measure, __doc__)

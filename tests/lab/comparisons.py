"""Comparisons that were never run: results with a known order, for tests of what is shown."""

from __future__ import annotations

import torch

from lossmith.lab.comparing.comparison import Comparison
from lossmith.lab.comparing.records import Settings, Trial

GAINS = {"ce": 0.0, "ce_again": -0.004, "smooth_ap": 0.02, "traced": 0.012, "focal": -0.015}


def made_up(
    *,
    data: str = "made up",
    metric: str = "ap",
    gains: dict[str, float] = GAINS,
    num_seeds: int = 5,
    with_confirmation: bool = True,
    noise: float = 0.003,
    warning: str | None = None,
    higher_is_better: bool = True,
) -> Comparison:
    """Each loss is better than cross-entropy by its gain, and by noise of its own; seeds share a larger noise."""
    generator = torch.Generator().manual_seed(0)
    sign = 1 if higher_is_better else -1
    best = max(gains, key=lambda name: gains[name])
    trials = []
    for is_fresh in (False, True)[: 1 + with_confirmation]:
        names = {"ce", "ce_again", best} & set(gains) if is_fresh else set(gains)
        for seed in range(num_seeds):
            common = 0.05 * float(torch.randn(1, generator=generator))
            for name in (each for each in gains if each in names):
                own = noise * float(torch.randn(1, generator=generator))
                for rate in (0.01, 0.03):
                    level = 0.8 + sign * (gains[name] + own - 0.01 * (rate == 0.01)) + common
                    curve = tuple((step, level - sign * 5 / step) for step in (100, 200, 300, 400))
                    warnings = (warning,) if warning and name == "traced" else ()
                    trial = Trial(
                        name,
                        "",
                        10_000 * is_fresh + seed,
                        rate,
                        is_fresh,
                        curve,
                        400,
                        None,
                        level,
                        level,
                        1e-3,
                        warnings,
                    )
                    trials.append(trial)
    return Comparison(Settings(data, metric, tuple(gains), num_seeds=num_seeds), higher_is_better, tuple(trials))

"""What a comparison is asked, and what each training run of it found: plain values that JSON can hold.

>>> trial = Trial("ce", "", 0, 0.01, False, ((100, 0.7), (200, 0.8)), 200, None, 0.8, 0.79, 0.001)
>>> Trial.from_json(trial.to_json()) == trial
True
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

REFERENCE, CONTROL = "ce", "ce_again"
"""What every loss is measured against, and the same once more: how large a difference is when there is none."""


@dataclass(frozen=True)
class Settings:
    """A name for the data, and how models are trained on them; results of other settings are not taken up."""

    data: str
    metric: str
    losses: tuple[str, ...]
    """Names of recipes. The reference comes first, whether it is named or not."""
    model: str = "auto"
    """A name from ``STACKED_MODELS``; ``auto`` is a network where there are rows enough for one, else linear."""
    num_seeds: int = 5
    """Of each wave: to explore, and, with other seeds, to confirm what exploring has found."""
    num_trials: int = 4
    """Learning rates that every loss is given."""
    num_steps: int = 700
    batch_size: int = 256
    is_balanced: bool = False
    """Batches of as many positives as negatives, as the third paper draws them."""
    max_rows: int | None = None
    """Of the training part."""
    first_seed: int = 0
    with_confirmation: bool = True
    """Fresh seeds for the loss that is recommended and those that it is measured against."""

    def __post_init__(self) -> None:
        wrong = {
            name: value
            for name, value, least in (
                ("num_seeds", self.num_seeds, 2),
                ("num_trials", self.num_trials, 1),
                ("num_steps", self.num_steps, 1),
                ("batch_size", self.batch_size, 2),
            )
            if value < least
        }
        if wrong:
            came = ", ".join(f"{name}={value}" for name, value in wrong.items())
            raise ValueError(f"{came} came; two seeds, one trial, one step and two rows a batch are the least.")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Settings:
        return cls(**{**fields, "losses": tuple(fields["losses"])})


@dataclass(frozen=True)
class Trial:
    """One training run, at its best checkpoint on the validation rows."""

    recipe: str
    variant: str
    """Of a recipe with a setting of its own to tune, the setting; else empty."""
    seed: int
    learning_rate: float
    is_confirmation: bool
    curve: tuple[tuple[int, float], ...]
    """The metric on the validation rows after so many steps; where it takes decisions, at its best threshold."""
    best_step: int
    threshold: float | None
    """Tuned on the validation rows; None where the metric needs none."""
    validation: float
    test: float
    seconds_per_step: float
    """Of this run alone: those of the stack that it was trained in, divided by their number."""
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Trial:
        curve = tuple((int(step), float(value)) for step, value in fields["curve"])
        return cls(**{**fields, "curve": curve, "warnings": tuple(fields["warnings"])})

"""Which loss? The same model under every loss, with equal budgets, and an honest answer.

Read in this order: ``records`` (what a comparison is asked and what it finds), ``recipes`` (the losses), ``stacks`` and
``stack_losses`` (how forty models train at the price of a few), ``studying`` (what is run, and what is kept),
``comparison`` (the table and the verdict).
"""

from lossmith.lab.comparing.comparison import Comparison, Row, load_comparison
from lossmith.lab.comparing.recipes import RECIPES, LossRecipe, snippet
from lossmith.lab.comparing.records import Settings, Trial
from lossmith.lab.comparing.studying import compare_steps

__all__ = [
    "RECIPES",
    "Comparison",
    "LossRecipe",
    "Row",
    "Settings",
    "Trial",
    "compare_steps",
    "load_comparison",
    "snippet",
]

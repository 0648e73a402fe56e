from __future__ import annotations

import pytest
import torch

import lossmith
from lossmith.kinds import Kind
from lossmith.lab.comparing.recipes import RECIPES, default_losses, snippet
from lossmith.metrics import METRICS

BINARY = [name for name, recipe in RECIPES.items() if Kind.BINARY in recipe.kinds]
# what they do between steps needs a model and batches
LOOPS = tuple(name for name in BINARY if name.startswith("sl_"))


@pytest.mark.parametrize("name", [name for name in BINARY if name not in LOOPS])
def test_snippets_run(name: str, generator: torch.Generator) -> None:
    outputs = torch.randn(20, generator=generator, requires_grad=True)
    names = {"outputs": outputs, "targets": torch.tensor([0, 1] * 10), "threshold": 0.0, "lossmith": lossmith}
    exec(snippet(RECIPES[name], "f1"), names)
    loss = names.get("loss")
    if callable(loss):
        assert bool(loss(outputs, names["targets"]).isfinite())


@pytest.mark.parametrize("name", LOOPS)
def test_snippets_of_loops_run(name: str, generator: torch.Generator) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0))
    batches = [(torch.randn(8, 2, generator=generator), torch.tensor([0, 1] * 4))] * 26
    names = {"model": model, "batches": batches, "optimizer": torch.optim.Adam(model.parameters())}
    exec(snippet(RECIPES[name], "f1"), names)


@pytest.mark.parametrize(
    "metric", ["auc", "ap", "f1", "mcc", "jaccard", "eer", "binary_accuracy", "accuracy", "f1_macro"]
)
def test_defaults_fit(metric: str) -> None:
    names = default_losses(METRICS[metric])
    assert names[:3] == ("ce", "ce_again", "balanced_ce")
    assert len(set(names)) == len(names) > 3
    assert all(RECIPES[name].fits(METRICS[metric]) for name in names)


def test_every_recipe_says_what_it_is() -> None:
    assert all(recipe.what.endswith(".") and recipe.lines for recipe in RECIPES.values())

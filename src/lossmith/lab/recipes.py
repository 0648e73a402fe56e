"""One sensible way to train a model on each data set with its ordinary loss.

>>> recipe_for("digits").model
'mlp'
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from lossmith.lab.datasets import Dataset
from lossmith.lab.models import MODELS


@dataclass(frozen=True)
class Recipe:
    """AdamW, a linear warm-up over the first twentieth of the steps, then half a cosine to zero."""

    model: str = "mlp"
    num_epochs: int = 20
    batch_size: int = 128
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    autocast_dtype: torch.dtype | None = None
    is_channels_last: bool = False

    def __post_init__(self) -> None:
        if self.num_epochs < 1:
            raise ValueError(f"{self.num_epochs} epochs came; 1 or more works.")


# a data set without a line here takes the plain recipe
RECIPES: dict[str, Recipe] = {
    "digits": Recipe(batch_size=32, num_epochs=10),
    "mnist": Recipe("small_cnn", num_epochs=3),
    "cifar10": Recipe("resnet20", num_epochs=4, autocast_dtype=torch.bfloat16, is_channels_last=True),
    "omniglot": Recipe("small_cnn", batch_size=64),
    "covtype": Recipe(num_epochs=5, batch_size=512),
}


def recipe_for(dataset_name: str) -> Recipe:
    return RECIPES.get(dataset_name, Recipe())


def new_model(recipe: Recipe, dataset: Dataset) -> nn.Module:
    """Untrained, on the data's device; its weights come from torch's global random numbers."""
    model = MODELS[recipe.model](dataset.input_shape, dataset.num_outputs).to(dataset.train_inputs.device)
    if recipe.is_channels_last:
        # torch's type stubs do not know that Module.to takes a memory format
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def new_optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    # initial_lr is what a scheduler asks for that starts in the middle
    group = {"params": list(model.parameters()), "initial_lr": recipe.learning_rate}
    return torch.optim.AdamW([group], lr=recipe.learning_rate, weight_decay=recipe.weight_decay)


def new_scheduler(optimizer: torch.optim.Optimizer, *, num_steps: int, first_step: int = 0) -> LambdaLR:
    num_warmup_steps = math.ceil(num_steps / 20)

    def factor(step: int) -> float:
        if step < num_warmup_steps:
            return (step + 1) / num_warmup_steps
        return 0.5 * (1 + math.cos(math.pi * (step - num_warmup_steps) / max(1, num_steps - num_warmup_steps)))

    return LambdaLR(optimizer, factor, last_epoch=first_step - 1)

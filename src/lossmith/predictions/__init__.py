"""Where stacks of predictions come from: files, and sets drawn from stored predictions."""

from lossmith.predictions.drawing import draw_sets
from lossmith.predictions.files import load_predictions, save_predictions
from lossmith.predictions.random import random_predictions

__all__ = ["draw_sets", "load_predictions", "random_predictions", "save_predictions"]

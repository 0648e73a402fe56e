"""Adaptive Loss Alignment: a controller moves a loss while the model trains, and learns which moves help the metric.

python examples/ala.py [training steps]
"""

import sys

import torch

import lossmith
from lossmith.lab.datasets import find_dataset
from lossmith.methods.ala import Child, ClassCorrelationLoss, EpochBatches
from lossmith.training import predict


def main(num_steps: int = 1200) -> None:
    torch.manual_seed(0)
    digits = find_dataset("digits").load(None)
    inputs, targets = digits.train_inputs.flatten(1), digits.train_targets
    # rows to train on, rows that reward the controller, rows that choose the model
    train, reward, choice = slice(0, 800), slice(800, 1000), slice(1000, None)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    loss = ClassCorrelationLoss(10)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    child = Child(model, loss, optimizer, EpochBatches(inputs[train], targets[train], batch_size=32, seed=0))
    accuracy = lossmith.metrics.accuracy()
    for step in lossmith.adaptive_steps(
        [child],
        lossmith.ALA(loss),
        accuracy,
        (inputs[reward], targets[reward]),
        num_steps=num_steps,
        interval=max(num_steps // 12, 2),
        selection=(inputs[choice], targets[choice]),
    ):
        selected = step.selected
    model.load_state_dict(selected)
    print(f"test accuracy: {accuracy(predict(model, digits.test_inputs.flatten(1)), digits.test_targets):.4f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""Adaptive Loss Alignment: a controller moves a loss while the model trains, and learns which moves help the metric.

python examples/ala.py [training steps] [picture of the run, such as run.png]
"""

import sys

import torch

import lossmith
from lossmith.lab.datasets import find_dataset
from lossmith.methods.ala import Child, ClassCorrelationLoss, EpochBatches
from lossmith.methods.ala.figures import draw_run
from lossmith.training import predict


def main(num_steps: int = 1200, picture: str | None = None) -> None:
    torch.manual_seed(0)
    digits = find_dataset("digits").load(None)
    inputs, targets = digits.train_inputs.flatten(1), digits.train_targets
    # rows to train on, rows that reward the controller, rows that choose the model
    train, reward, choice = slice(0, 800), slice(800, 1000), slice(1000, None)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    loss = ClassCorrelationLoss(10)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    child = Child(model, loss, optimizer, EpochBatches(inputs[train], targets[train], batch_size=32, seed=0))
    accuracy, controller = lossmith.metrics.accuracy(), lossmith.ALA(loss, learning_rate=0.01)
    rounds = lossmith.adaptive_steps(
        [child],
        controller,
        accuracy,
        (inputs[reward], targets[reward]),
        num_steps=num_steps,
        interval=max(num_steps // 60, 2),
        selection=(inputs[choice], targets[choice]),
    )
    steps = list(rounds)
    model.load_state_dict(steps[-1].selected)
    print(f"test accuracy: {accuracy(predict(model, digits.test_inputs.flatten(1)), digits.test_targets):.4f}")
    if picture:
        draw_run(steps, controller, loss, picture)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:3])

"""UniLoss: a metric's own code, interpolated between configurations of its decisions. Nothing is learned beforehand.

python examples/uniloss.py [training steps]
"""

import sys

import torch

import lossmith
from lossmith.lab.datasets import find_dataset
from lossmith.training import predict, shuffled_batches, train_steps


def main(num_steps: int = 400) -> None:
    torch.manual_seed(0)
    digits = find_dataset("digits").load(None)
    inputs, targets = digits.train_inputs.flatten(1), digits.train_targets
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    loss = lossmith.UniLoss("accuracy", num_anchors=16)
    num_epochs = -(-num_steps // (len(inputs) // 64))
    batches = shuffled_batches(
        inputs, targets, batch_size=64, num_epochs=num_epochs, generator=torch.Generator().manual_seed(0)
    )
    for step in train_steps(model, loss, batches, torch.optim.Adam(model.parameters(), lr=0.01)):
        if step.number % 100 == 0:
            print(f"step {step.number}: estimated cost of a batch {step.loss:.3f}")
    accuracy = lossmith.metrics.accuracy()
    print(f"test accuracy: {accuracy(predict(model, digits.test_inputs.flatten(1)), digits.test_targets):.4f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

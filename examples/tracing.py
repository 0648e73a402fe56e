"""Traced losses: a function that nobody else has becomes a loss, and says what each decision is worth.

python examples/tracing.py [training steps]
"""

import sys

import torch

import lossmith
from lossmith.lab.datasets import find_dataset, one_against_rest
from lossmith.training import predict, shuffled_batches, train_steps


def profit(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Calling a customer costs 1, one who buys brings 10."""
    is_called = (outputs > 0).float()
    return (10 * targets * is_called - is_called).mean()


def main(num_steps: int = 400) -> None:
    torch.manual_seed(0)
    digits = one_against_rest(find_dataset("digits").load(None), 8)
    inputs, targets = digits.train_inputs.flatten(1), digits.train_targets
    rows = digits.test_inputs.flatten(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 1), torch.nn.Flatten(0))
    loss = lossmith.trace(profit, link=0.5)
    num_epochs = -(-num_steps // (len(inputs) // 64))
    batches = shuffled_batches(
        inputs, targets, batch_size=64, num_epochs=num_epochs, generator=torch.Generator().manual_seed(0)
    )
    for _ in train_steps(model, loss, batches, torch.optim.Adam(model.parameters(), lr=0.01)):
        pass
    outputs = predict(model, rows)
    print(f"test profit of a customer: {profit(outputs, digits.test_targets):.4f}")
    print(loss.explain(outputs[:6], digits.test_targets[:6]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""Learning surrogate losses: a small network learns the metric while it trains the model.

python examples/bilevel.py [iterations, of three model steps each]
"""

import sys
from itertools import islice

import torch

import lossmith
from lossmith.lab.datasets import find_dataset, one_against_rest
from lossmith.methods.bilevel import BilevelSurrogate, bilevel_steps, stratified_batches
from lossmith.training import predict


def main(num_iterations: int = 150) -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    digits = one_against_rest(find_dataset("digits").load(None), 8)
    inputs, targets = digits.train_inputs.flatten(1), digits.train_targets
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1), torch.nn.Flatten(0))
    metric = lossmith.metrics.METRICS["auc"]
    surrogate = BilevelSurrogate("binary", generator=generator)
    steps = bilevel_steps(
        model,
        surrogate,
        metric,
        stratified_batches(inputs, targets, batch_size=100, generator=generator),
        torch.optim.Adam(model.parameters(), lr=0.003),
        torch.optim.Adam(surrogate.parameters(), lr=0.003),
        generator=generator,
    )
    for step in islice(steps, num_iterations):
        if step.number % 50 == 0:
            print(f"iteration {step.number}: surrogate's estimate of the cost {step.loss:.3f}")
    outputs = predict(model, digits.test_inputs.flatten(1))
    print(f"test {metric.name}: {metric(outputs, digits.test_targets):.4f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

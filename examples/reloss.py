"""ReLoss: learn a loss for a metric from what models predict, then train with it beside cross-entropy.

python examples/reloss.py [training steps]
"""

import sys

import torch

import lossmith
from lossmith.lab.datasets import find_dataset
from lossmith.training import predict, shuffled_batches, train_steps


def main(num_steps: int = 600) -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    digits = find_dataset("digits").load(None)
    inputs, targets = digits.train_inputs.flatten(1), digits.train_targets
    metric = lossmith.metrics.METRICS["f1_macro"]

    def new_model() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    # 1. what a model predicts early and late, on rows that it does not train on
    model, seen, unseen = new_model(), slice(0, 800), slice(800, None)
    batches = shuffled_batches(inputs[seen], targets[seen], batch_size=32, num_epochs=8, generator=generator)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    steps = train_steps(model, torch.nn.CrossEntropyLoss(), batches, optimizer)
    checkpoints = [predict(model, inputs[unseen]) for step in steps if step.number % 20 == 0]
    outputs = torch.stack(checkpoints)  # [checkpoints, rows, classes]
    predictions = lossmith.Predictions(outputs, targets[unseen].expand(len(outputs), -1).contiguous())

    # 2. a loss that orders them as the metric does
    learned = lossmith.learn(metric, predictions, num_steps=100, progress=False)
    (measured,) = learned.card.measured.values()
    print(f"rank correlation with {metric.name}: {measured.spearman}; of cross-entropy: {measured.base_spearman}")

    # 3. in the sum with cross-entropy, after a warm-up
    model = new_model()
    loss = lossmith.combine(torch.nn.CrossEntropyLoss(), learned, warmup_steps=num_steps // 3)
    num_epochs = -(-num_steps // (len(inputs) // 64))
    batches = shuffled_batches(inputs, targets, batch_size=64, num_epochs=num_epochs, generator=generator)
    for _ in train_steps(model, loss, batches, torch.optim.Adam(model.parameters(), lr=0.003)):
        pass
    test = predict(model, digits.test_inputs.flatten(1))
    print(f"test {metric.name}: {metric(test, digits.test_targets):.4f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

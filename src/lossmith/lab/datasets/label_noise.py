"""A data set of which some training labels are wrong: drawn at random, right by chance. The test labels are clean.

>>> from lossmith.lab.datasets.digits import load_digits
>>> noisy = with_label_noise(Source(load_digits, "digits"), "digits_noisy", 0.3).load(None)
>>> 0.2 < float((noisy.train_targets != load_digits().train_targets).float().mean()) < 0.35
True
"""

from __future__ import annotations

from dataclasses import replace

import torch

from lossmith.lab.datasets.dataset import Dataset, Source


def with_label_noise(source: Source, name: str, share: float) -> Source:
    """``share`` of the training labels are drawn anew, the same ones at each load."""

    def load(max_rows: int | None = None) -> Dataset:
        dataset = source.load(max_rows)
        generator = torch.Generator().manual_seed(0)
        size = dataset.train_targets.shape
        is_wrong = torch.rand(size, generator=generator) < share
        drawn = torch.randint(dataset.num_classes, size, generator=generator)
        return replace(dataset, name=name, train_targets=torch.where(is_wrong, drawn, dataset.train_targets))

    description = f"{source.description}, with {share:.0%} of the training labels drawn at random"
    return Source(load, description, source.file_name)

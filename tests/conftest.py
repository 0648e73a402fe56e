"""Shared by all tests: where the real data lie, one thread, seeded generators."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data sets; without ``LOSSMITH_DATA`` the test is skipped."""
    root = os.environ.get("LOSSMITH_DATA")
    if not root:
        pytest.skip("LOSSMITH_DATA is not set: it names the folder with the real data sets")
    return Path(root)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)

"""Each model: shapes, sizes from the papers, and that it learns."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from lossmith.lab.models import MODELS, CifarResNet, Mlp

IMAGE = torch.Size([3, 32, 32])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("num_outputs", [1, 10])
def test_shapes_and_gradients(name: str, num_outputs: int) -> None:
    model = MODELS[name](IMAGE, num_outputs)
    outputs = model(torch.randn(2, *IMAGE))
    assert outputs.shape == ((2,) if num_outputs == 1 else (2, 10))
    outputs.square().sum().backward()
    assert all(weights.grad is not None and weights.grad.isfinite().all() for weights in model.parameters())


# He et al. 2015, table 6: 0.27M, 0.46M, 0.85M
@pytest.mark.parametrize(("depth", "millions"), [(20, 0.27), (32, 0.46), (56, 0.85)])
def test_resnet_sizes(depth: int, millions: float) -> None:
    size = sum(weights.numel() for weights in CifarResNet(IMAGE, 10, depth=depth).parameters())
    assert round(size / 1e6, 2) == millions
    convolutions = [
        module for module in CifarResNet(IMAGE, 10, depth=depth).modules() if isinstance(module, torch.nn.Conv2d)
    ]
    assert len(convolutions) == depth - 1  # and one dense layer; shortcuts have no weights


def test_resnet_depth() -> None:
    with pytest.raises(ValueError, match="6n \\+ 2"):
        CifarResNet(IMAGE, 10, depth=21)


def test_resnet_is_the_same_in_channels_last() -> None:
    torch.manual_seed(0)
    model = CifarResNet(IMAGE, 10, depth=20).eval()
    inputs = torch.randn(2, *IMAGE)
    expected = model(inputs)
    model = model.to(memory_format=torch.channels_last)
    hidden = model.blocks(model.stem(inputs.contiguous(memory_format=torch.channels_last)))
    assert hidden.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(model(inputs), expected, atol=1e-5)


def test_shortcut_keeps_every_other_pixel() -> None:
    model = CifarResNet(IMAGE, 10, depth=20)
    inputs = torch.randn(1, 16, 8, 8)
    shortcut = model.blocks[3]._shortcut(inputs)
    assert shortcut.shape == (1, 32, 4, 4)
    assert torch.equal(shortcut[:, :16], inputs[:, :, ::2, ::2])
    assert not shortcut[:, 16:].any()


def test_linear_model_is_linear() -> None:
    model = Mlp(torch.Size([4]), 3, widths=())
    inputs = torch.randn(5, 4)
    bias = model(torch.zeros(1, 4))
    assert torch.allclose(model(2 * inputs) - bias, 2 * (model(inputs) - bias), atol=1e-5)


@pytest.mark.parametrize("name", ["mlp", "small_cnn", "resnet20"])
def test_learns_a_few_images_by_heart(name: str) -> None:
    torch.manual_seed(0)
    shape = torch.Size([3, 16, 16])
    model = MODELS[name](shape, 4)
    inputs, targets = torch.randn(16, *shape), torch.arange(16) % 4
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    assert (model(inputs).argmax(1) == targets).all()

"""Arguments of a torch operation are tuples, lists and dicts with tensors somewhere inside.

Written out because ``torch.utils._pytree`` takes longer than the operations themselves.

>>> map_leaves(lambda leaf: leaf * 2, (1, [2, 3], {"dim": 4}))
(2, [4, 6], {'dim': 8})
>>> leaves((1, [2, 3], {"dim": 4}))
[1, 2, 3, 4]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same tree with other leaves; results of torch (``max``, ``sort``) keep their names."""
    if isinstance(tree, (tuple, list)):
        return type(tree)([map_leaves(function, each) for each in tree])
    if isinstance(tree, dict):
        return {key: map_leaves(function, each) for key, each in tree.items()}
    return function(tree)


def map_leaves_of_two(function: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
    """Of two trees of the same form."""
    if isinstance(first, (tuple, list)):
        return type(first)([map_leaves_of_two(function, *both) for both in zip(first, second)])
    return function(first, second)


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, (tuple, list)):
        return [leaf for each in tree for leaf in leaves(each)]
    if isinstance(tree, dict):
        return [leaf for each in tree.values() for leaf in leaves(each)]
    return [tree]

"""ImageNet, or anything that is laid out as it: a folder for each class, with images of any size.

``imagenet/train/<class>/<any name>`` and ``imagenet/val/<class>/<any name>``. Images stay in memory, so they are made
small: the shorter side becomes 64 pixels, and the middle square is cut out. All of ImageNet takes 63 GB that way;
``max_rows`` takes so many images of each part, drawn from all classes. The official ``val`` has no folders for classes:
sort it into some first.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lossmith.kinds import Kind
from lossmith.lab.datasets.dataset import Dataset, find_folder

FOLDER_NAME = "imagenet"
SIZE = 64
SUFFIXES = frozenset({".jpeg", ".jpg", ".png", ".webp", ".bmp"})
# of the training images, by channel, on the scale 0 to 255
MEAN = (123.675, 116.28, 103.53)
STANDARD_DEVIATION = (58.395, 57.12, 57.375)


def load_imagenet(max_rows: int | None = None) -> Dataset:
    """At most ``max_rows`` images of each part, in random order; classes are numbered by the names of their folders."""
    folder = find_folder(FOLDER_NAME)
    class_names = _class_names(folder / "train")
    if len(class_names) < 2:
        raise ValueError(f"{folder / 'train'} has {len(class_names)} folders; one for each class, 2 or more, work.")
    train = _read_part(folder / "train", class_names, max_rows)
    test = _read_part(folder / "val", class_names, max_rows)
    return Dataset("imagenet", Kind.MULTICLASS, *train, *test, num_classes=len(class_names))


def _class_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _read_part(folder: Path, class_names: Sequence[str], max_rows: int | None) -> tuple[Tensor, Tensor]:
    found = _class_names(folder)
    if unknown := sorted(set(found) - set(class_names)):
        raise ValueError(f"{folder} has the class {unknown[0]!r}, which train has not; the same classes work.")
    files = [
        (path, number)
        for number, name in enumerate(class_names)
        for path in sorted((folder / name).glob("*"))
        if path.suffix.lower() in SUFFIXES
    ]
    if not files:
        raise ValueError(f"{folder} has no images; files that end in {', '.join(sorted(SUFFIXES))} work.")
    order = torch.randperm(len(files), generator=torch.Generator().manual_seed(0))[:max_rows].tolist()
    images = torch.empty(len(order), 3, SIZE, SIZE).to(memory_format=torch.channels_last)
    # decoding leaves the interpreter's lock to others; one by one into the place of all, which is there once
    with ThreadPoolExecutor() as pool:
        for place, image in zip(images, pool.map(_read_image, (files[row][0] for row in order))):
            place.copy_(image)
    mean, deviation = (torch.tensor(each).view(-1, 1, 1) for each in (MEAN, STANDARD_DEVIATION))
    return images.sub_(mean).div_(deviation), torch.tensor([files[row][1] for row in order])


def _read_image(path: Path) -> Tensor:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            square = ImageOps.fit(image.convert("RGB"), (SIZE, SIZE), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{path} cannot be read as an image ({error}); leave it out.") from error
    return torch.from_numpy(np.array(square)).permute(2, 0, 1).float()

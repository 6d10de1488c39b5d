"""The models of `models.py` in PyTorch: the same layers, in its own order of axes (channels first)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.gpu.plan import GPTS, IMAGE_SIDES, Gpt

_NUM_CLASSES = 1000
# As Keras has it: 1.001e-5, and a momentum of 0.99.
_NORM = {"eps": 1.001e-5, "momentum": 0.01}
# (width, blocks, stride of the first) of each stage.
_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))


class Bottleneck(nn.Module):
    """A block of ResNet-50 as in its paper: the stride is in the first convolution.

    Args:
        width_in: Channels that come.
        width: Of the convolution of 3 x 3; four times as many go.
        stride: Of the block.
    """

    def __init__(self, width_in: int, width: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(width_in, width, 1, stride), nn.BatchNorm2d(width, **_NORM), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width, **_NORM), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, 4 * width, 1), nn.BatchNorm2d(4 * width, **_NORM)),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or width_in != 4 * width:
            convolution = nn.Conv2d(width_in, 4 * width, 1, stride)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(4 * width, **_NORM))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Adds what the block computes."""
        return functional.relu(self.body(inputs) + self.shortcut(inputs))


class Attention(nn.Module):
    """Multi-head attention to what came before.

    Args:
        width: Of each place.
        heads: How many.
    """

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[batch, length, width]`, to the same."""
        batch, length, width = x.shape
        parts = self.inputs(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(found.transpose(1, 2).reshape(batch, length, width))


class Decoder(nn.Module):
    """The GPT of a shape."""

    def __init__(self, shape: Gpt):
        super().__init__()
        width = shape.width
        self.tokens = nn.Embedding(shape.vocabulary, width)
        self.positions = nn.Parameter(0.02 * torch.randn(shape.length, width))
        self.attentions = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width, eps=1e-3), Attention(width, shape.heads)) for _ in range(shape.depth)
        )
        self.dense = nn.ModuleList(
            nn.Sequential(
                *(nn.LayerNorm(width, eps=1e-3), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            )
            for _ in range(shape.depth)
        )
        self.head = nn.Sequential(nn.LayerNorm(width, eps=1e-3), nn.Linear(width, shape.vocabulary, bias=False))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """`[batch, length]`, to the logits of the next token, `[batch, vocabulary, length]`."""
        x = self.tokens(tokens) + self.positions
        for attention, dense in zip(self.attentions, self.dense, strict=True):
            x = x + attention(x)
            x = x + dense(x)
        return self.head(x).transpose(1, 2)


class _Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, 2, 1)
        self.body = nn.Sequential(nn.BatchNorm2d(8, eps=1e-3), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
        self.head = nn.Linear(8, _NUM_CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.first(images)
        return self.head((x + self.body(x)).mean(dim=(2, 3)))


def build(name: str, size: str) -> nn.Module:
    """As `models.build`."""
    if name == "gpt":
        return Decoder(GPTS[size])
    if size == "tiny":
        return _Tiny()
    layers: list[nn.Module] = [
        *(nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64, **_NORM), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)),
    ]
    width_in = 64
    for width, blocks, stride in _STAGES:
        for index in range(blocks):
            layers.append(Bottleneck(width_in, width, stride if index == 0 else 1))
            width_in = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width_in, _NUM_CLASSES))


def data(name: str, size: str, batch: int, rank: int) -> tuple[Any, Any]:
    """One batch of a rank, in the host's memory, again and again."""
    generator = torch.Generator().manual_seed(rank)
    if name == "gpt":
        shape = GPTS[size]
        tokens = torch.randint(shape.vocabulary, (batch, shape.length + 1), generator=generator)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    side = IMAGE_SIDES[size]
    images = torch.randn((batch, 3, side, side), generator=generator)
    return images, torch.randint(_NUM_CLASSES, (batch,), generator=generator)

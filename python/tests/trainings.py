"""Small trainings whose every part may show who has computed what: BatchNorm, dropout, momentum, clipping."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, NamedTuple, Tuple

import torch
from torch import nn


class Training(NamedTuple):
    """A model, its optimizer, and the loss of a micro-batch."""

    model: Callable[[], nn.Module]
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    loss: Callable[[nn.Module, int, int], torch.Tensor]
    micro_batches: int
    clip: float = 0.0

    def make(self) -> Tuple[nn.Module, torch.optim.Optimizer]:
        model = self.model()
        return model, self.optimizer(model.parameters())


def data(step: int, micro_batch: int) -> torch.Generator:
    """The samples of a micro-batch depend on its step and number."""
    return torch.Generator().manual_seed(step * 1000 + micro_batch)


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(1, 6, 3, stride=2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(54, 10),
    )
    return nn.Sequential(*layers)


def digits_loss(model: nn.Module, step: int, micro_batch: int) -> torch.Tensor:
    g = data(step, micro_batch)
    y = torch.randint(10, (5,), generator=g)
    x = torch.randn(5, 1, 8, 8, generator=g) + y.view(-1, 1, 1, 1) * 0.3
    return nn.functional.cross_entropy(model(x), y)


class Characters(nn.Module):
    """A transformer over characters, of one block."""

    def __init__(self, kinds: int = 17, width: int = 16, length: int = 12):
        super().__init__()
        self.token, self.place = nn.Embedding(kinds, width), nn.Embedding(length, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.out = nn.Linear(width, kinds)
        nn.init.zeros_(self.out.weight)  # so that what is before it has a gradient from the second step on only

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.out(self.block(self.token(x) + self.place(torch.arange(length)), src_mask=mask, is_causal=True))


def characters() -> nn.Module:
    torch.manual_seed(0)
    return Characters()


def characters_loss(model: nn.Module, step: int, micro_batch: int) -> torch.Tensor:
    x = torch.randint(17, (3, 13), generator=data(step, micro_batch))
    return nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


TRAININGS: dict[str, Any] = {
    "convolutional": Training(convolutional, functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9), digits_loss, 6),
    "characters": Training(characters, functools.partial(torch.optim.AdamW, lr=0.01), characters_loss, 7, clip=0.5),
}

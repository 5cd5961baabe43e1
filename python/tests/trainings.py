"""Small trainings on real data, whose every part may show who has computed what: BatchNorm, dropout, momentum, clipping.

The digits are those of MNIST that the examples use, the characters those of the licence.
"""

from __future__ import annotations

import functools
import gzip
import os
from typing import Any, Callable, Iterable, NamedTuple, Tuple

import torch
from torch import nn

#: The repository.
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

#: Characters of a passage.
LENGTH = 16


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


@functools.lru_cache(maxsize=None)  # once
def digits() -> Tuple[torch.Tensor, torch.Tensor]:
    """Ten thousand pictures of 28 x 28 pixels, and what they show."""

    def content(name: str, head: int) -> torch.Tensor:
        with gzip.open(os.path.join(TOP, "examples", "mnist", "data", f"train-{name}-ubyte.gz")) as f:
            return torch.frombuffer(bytearray(f.read()[head:]), dtype=torch.uint8)

    return content("images-idx3", 16).view(-1, 1, 28, 28), content("labels-idx1", 8).long()


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(1, 6, 5, stride=4),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(216, 10),
    )
    return nn.Sequential(*layers)


def digits_loss(model: nn.Module, step: int, micro_batch: int) -> torch.Tensor:
    pictures, labels = digits()
    some = torch.randint(len(labels), (8,), generator=data(step, micro_batch))
    return nn.functional.cross_entropy(model(pictures[some] / 255), labels[some])


def loss_of_two(model: nn.Module, step: int, micro_batch: int) -> torch.Tensor:
    """From step 2 on some gradients come twice in a micro-batch: all of them, or those of one parameter before all."""
    loss = digits_loss(model, step, micro_batch)
    if step > 1 and micro_batch % 3 == 1:
        loss.backward(retain_graph=True)
    if step > 1 and micro_batch % 3 == 2:
        (list(model.parameters())[-2] * 0.1).sin().sum().backward()
    return loss


@functools.lru_cache(maxsize=None)  # once
def text() -> Tuple[torch.Tensor, int]:
    """The characters of a text as numbers, and how many kinds there are."""
    with open(os.path.join(TOP, "LICENSE"), encoding="utf-8") as f:
        written = f.read()
    kinds = sorted(set(written))
    return torch.tensor([kinds.index(c) for c in written]), len(kinds)


class Characters(nn.Module):
    """A GPT over characters, of one block."""

    def __init__(self, kinds: int, width: int = 16, length: int = LENGTH):
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
    return Characters(text()[1])


def characters_loss(model: nn.Module, step: int, micro_batch: int) -> torch.Tensor:
    numbers, _ = text()
    starts = torch.randint(len(numbers) - LENGTH, (3, 1), generator=data(step, micro_batch))
    x = numbers[starts + torch.arange(LENGTH + 1)]
    return nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


_CONVOLUTIONAL = Training(convolutional, functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9), digits_loss, 6)

TRAININGS: dict[str, Any] = {
    "convolutional": _CONVOLUTIONAL,
    "convolutional of 4": _CONVOLUTIONAL._replace(micro_batches=4),
    "convolutional of two losses": _CONVOLUTIONAL._replace(loss=loss_of_two),
    "characters": Training(characters, functools.partial(torch.optim.AdamW, lr=0.01), characters_loss, 7, clip=0.5),
}

#: Those that fully_shard can deal: it knows nothing of a loss that is not of the model's result.
DEALT = [name for name, training in TRAININGS.items() if training.loss is not loss_of_two]

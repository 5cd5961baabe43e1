"""A small Llama: made on the meta device, and initialised when its parts have memory."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, distribute_tensor


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, angles):
        b, t, width = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = turned(q, angles[:t]), turned(k, angles[:t])
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, width))


def turned(x, angles):
    """Positions as angles between pairs of numbers (RoPE)."""
    a, b = x.chunk(2, dim=-1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x, angles):
        x = x + self.attention(self.norm1(x), angles)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, words, context, width=64, heads=4, layers=2):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)
        self.register_buffer("angles", torch.empty(context, width // heads // 2), persistent=False)

    def forward(self, x):
        x = self.words(x)
        for block in self.blocks:
            x = block(x, self.angles)
        return self.head(self.norm(x))

    def init_buffers(self):
        """What is in no state dict, and is therefore in no state either."""
        context, half = self.angles.shape
        turns = 10000.0 ** (-torch.arange(half, device=self.angles.device) / half)
        self.angles.copy_(torch.arange(context, device=self.angles.device).unsqueeze(1) * turns)

    @torch.no_grad()
    def init_weights(self, seed=1):
        """The same weights on any number of ranks: each takes its part of what all have drawn."""
        generator = torch.Generator().manual_seed(seed)
        for p in self.parameters():
            whole = torch.ones(p.shape)
            if p.dim() > 1:
                nn.init.trunc_normal_(whole, std=0.02, generator=generator)
            if isinstance(p, DTensor):
                whole = distribute_tensor(whole.to(p.device), p.device_mesh, p.placements)
            p.copy_(whole)

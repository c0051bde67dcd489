"""threads of 2025 on flex attention: the sequence grows, and with it the mask."""
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def near(b, h, q, kv):
    return (q >= kv) & (q - kv < 64)


@torch.compile(backend="eager")
def attend(q, k, v, mask):
    return flex_attention(q, k, v, block_mask=mask).relu()


for length in (256, 384, 512):
    q, k, v = (torch.randn(2, 4, length, 16) for _ in range(3))
    attend(q, k, v, create_block_mask(near, None, None, length, length, device="cpu"))

"""The programs of `browser_recordings.py`: one for each kind of thing that may happen to a compiled program."""

from __future__ import annotations

__all__ = [
    "COMPARED",
    "DDP_AND_ANOTHER",
    "DETECTION",
    "EIGHT_RANKS",
    "FAILS_IN_AOT",
    "FAILS_IN_CPP",
    "FAILS_IN_DYNAMO",
    "FAILS_IN_FAKE_TENSORS",
    "FAILS_IN_LOWERING",
    "FAILS_WHEN_CALLED",
    "GPT2",
    "SLOW",
    "THIRTY_BREAKS",
    "THREE_FILES",
    "TRANSFORMER",
    "TWELVE_RECOMPILES",
    "TWO_LAYERS",
    "WRONG",
]

TRANSFORMER = """
import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.first, self.second = Layer(width, heads), Layer(width, heads)

    def forward(self, x):
        return self.second(self.first(x))


device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = torch.compile(Transformer().to(device))
loss = model(torch.randn(2, 32, 64, device=device)).square().mean()
loss.backward()
"""
GPT2 = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(n_layer=6, n_head=4, n_embd=128, vocab_size=512, n_positions=64, use_cache=False)
model = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
forward = torch.compile(model)
for step in range(2):
    ids = torch.randint(512, (2, 32))
    loss = forward(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
_BREAKING = (
    'print("mean", x.shape)',
    "if x.sum() > 0: x = x + 1",
    "scale = x.max().item(); x = x / (1 + abs(scale))",
    "torch._dynamo.graph_break()",
    "started = time.time(); x = x + 0 * (started > 0)",
)
THIRTY_BREAKS = """
import logging
import random
import time

import torch

log = logging.getLogger("train")


@torch.compile(backend="aot_eager")
def step(x):
{body}
    return x.sum()


step(torch.randn(8, 8))
""".format(body="\n".join(f"    {_BREAKING[number % len(_BREAKING)]}\n    x = x.sin()" for number in range(30)))
TWELVE_RECOMPILES = """
import torch

torch._dynamo.config.recompile_limit = 16


@torch.compile(backend="aot_eager", dynamic=False)
def activate(x, mode, scale):
    if mode == "relu":
        return x.relu() * scale
    return x.tanh() * scale


for size in range(2, 15):
    activate(torch.randn(size, 4), "relu" if size % 2 else "tanh", 2)
"""
FAILS_IN_DYNAMO = """
import torch


@torch.compile(fullgraph=True)
def forward(x):
    y = x.sin()
    print("mean", y.mean())
    return y.relu()


forward(torch.randn(8))
"""
FAILS_IN_FAKE_TENSORS = """
import torch


@torch.compile
def forward(x, weight):
    hidden = x.relu()
    return hidden @ weight


forward(torch.randn(4, 8), torch.randn(7, 3))
"""
FAILS_IN_AOT = """
import torch


@torch.library.custom_op("demo::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.compile
def forward(x):
    return twice(x.sin()).cos()


forward(torch.randn(4, requires_grad=True))
"""
FAILS_IN_LOWERING = """
import torch
from torch._inductor import lowering


def no_lowering(*args, **options):
    raise AssertionError("this lowering does not know the layout")


for key in list(lowering.lowerings):
    if str(key).startswith("aten.relu"):
        lowering.lowerings[key] = no_lowering


@torch.compile
def forward(x):
    hidden = x.sin()
    return torch.relu(hidden) + 1


forward(torch.randn(8, 8))
"""
FAILS_IN_CPP = """
import torch
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

for overrides in (CppOverrides, CppVecOverrides):
    overrides.relu = staticmethod(lambda x: f"not_a_function({x})")


@torch.compile
def forward(x):
    hidden = x.sin()
    return torch.relu(hidden) + 1


forward(torch.randn(64, 64))
"""
FAILS_WHEN_CALLED = """
import torch


@torch.library.custom_op("demo::checked", mutates_args=())
def checked(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("the values are out of range")


@checked.register_fake
def _(x):
    return torch.empty_like(x)


@torch.compile
def forward(x):
    return checked(x.sin()) + 1


forward(torch.randn(8))
"""
WRONG = """
import torch
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

for overrides, zero in ((CppOverrides, "decltype({x})(0.125)"), (CppVecOverrides, "decltype({x})(0.125)")):
    overrides.relu = staticmethod(lambda x, zero=zero: f"at::vec::clamp_min({x}, {zero.format(x=x)})")
CppOverrides.relu = staticmethod(lambda x: f"std::max({x}, decltype({x})(0.125))")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)).cos())


torch.manual_seed(0)
net = Net()
compiled = torch.compile(net)
x = torch.randn(4, 8)
with torch.no_grad():
    torch.testing.assert_close(compiled(x), net(x))
"""
COMPARED = """
import torch


def step(x):
    y = x.sin()
    print("mean", y.mean())
    return torch.relu(y) + 1


def step_and_input():
    return step, (torch.randn(64, 64),)
"""
EIGHT_RANKS = """
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


@torch.compile(backend="aot_eager")
def step(x, scale):
    total = (x.sin() * scale).sum()  # ranks that reduce tensors of other sizes may wait for ever
    dist.all_reduce(total)
    return total


for _ in range(2):
    step(torch.ones(4 if rank != 5 else 5 * (_ + 1)), 2.0)
dist.barrier()
dist.destroy_process_group()
"""
SLOW = """
import time
import torch


@torch.compile(backend="aot_eager")
def step(x):
    print("step")
    return x.sin() + 1


for size in range(2, 1000):
    step(torch.ones(size))
    time.sleep(1)
"""
TWO_LAYERS = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(n_layer=2, n_head=4, n_embd=128, vocab_size=512, n_positions=64, use_cache=False)
model = GPT2LMHeadModel(config).eval()


@torch.compile
def step(ids):
    logits = model(ids).logits
    return logits.softmax(-1)


@torch.compile
def scale(x, factor):
    return x * factor + 1


with torch.no_grad():
    step(torch.randint(512, (2, 32)))
    for factor in (torch.ones(8), torch.ones(8, dtype=torch.float64), torch.ones(8, dtype=torch.float16)):
        scale(torch.ones(8), factor)
"""
# A program of three own files, by name. The first one is run.
THREE_FILES = {
    "train": """
import torch
from three_model import Net

torch.manual_seed(0)
net = Net(32)


@torch.compile
def step(x):
    logits = net(x)
    return logits.square().mean()


for size in (8, 9):
    step(torch.randn(size, 32)).backward()
""",
    "three_model": """
from torch import nn
from three_layers import Gate, normalized


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gates = nn.ModuleList([Gate(width), Gate(width)])
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        for gate in self.gates:
            x = x + gate(normalized(x))
        return self.head(x)
""",
    "three_layers": """
import torch
from torch import nn


def normalized(x):
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x):
        value, gate = self.up(x).chunk(2, -1)
        return self.down(value * torch.sigmoid(gate))
""",
}
DETECTION = """
import torch
from transformers import YolosConfig, YolosForObjectDetection

torch.manual_seed(0)
config = YolosConfig(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=[64, 64],
    num_detection_tokens=10, num_labels=5,
)
model = YolosForObjectDetection(config).eval()
detect = torch.compile(model)


@torch.compile
def best(scores, boxes):
    chosen = scores.max(-1).values > 0.2
    return boxes[chosen]


with torch.no_grad():
    for size in (64, 96):
        result = detect(torch.randn(1, 3, size, size))
    best(result.logits.softmax(-1), result.pred_boxes)
"""
DDP_AND_ANOTHER = """
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29533")
dist.init_process_group("gloo", rank=0, world_size=1)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
model = torch.compile(DistributedDataParallel(net))


@torch.compile
def loss_of(logits, target):
    return (logits - target).square().mean()


for _ in range(2):
    loss_of(model(torch.randn(8, 16)), torch.zeros(8, 4)).backward()
dist.destroy_process_group()
"""
# Values that are recorded (`record --values`).
NAN_IN_THE_LOSS = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


torch.manual_seed(0)
net = nn.Sequential(Block(16), Block(16), nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=RATE)


@torch.compile
def loss_of(x, offset):
    shares = net(x).softmax(-1)
    return -torch.log(shares.amax(-1) - offset).mean()


for step in range(4):
    loss = loss_of(torch.randn(8, 16), torch.tensor(0.0 if step < 3 else 1.5))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
OVERFLOWS = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.linear, self.scale = nn.Linear(32, 32), scale

    def forward(self, x):
        return self.linear(x) * self.scale


torch.manual_seed(0)
net = nn.Sequential(*(Layer(scale) for scale in (10.0, 100.0, 1000.0, 1.0))).half()
with torch.no_grad():
    torch.compile(net)(torch.randn(4, 32).half())
"""
TWO_INPUTS = """
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


@torch.compile
def scores_of(x, mask):
    return net(x * mask).softmax(-1)


x = torch.randn(4, 8)
mask = torch.ones(4, 8)
if dist.get_rank() == 1:
    mask[2, 3] = 0.0
with torch.no_grad():
    scores_of(x, mask)
dist.destroy_process_group()
"""

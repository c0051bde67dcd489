"""Trains a small captioner on made-up images, as a training script grows: it logs, clips, masks and counts where it is
convenient. Six of its lines break the graph of the training step, and two values make torch compile it again.
"""

import argparse
import logging
import math
import time
import warnings
from dataclasses import dataclass

import torch
from torch import nn

log = logging.getLogger("captioner")
PAD, START = 0, 1


@dataclass(frozen=True)
class Config:
    """The sizes of the model and the settings of its training."""

    vocabulary: int = 32
    width: int = 32
    heads: int = 4
    layers: int = 2
    patches: int = 9
    channels: int = 12
    longest: int = 10
    warmup: int = 6
    decay_steps: int = 40
    weight_decay: float = 0.01
    label_smoothing: float = 0.05
    learning_rate: float = 3e-3
    z_loss: float = 1e-3


class PatchEncoder(nn.Module):
    """Turns image patches into vectors."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.project = nn.Linear(config.channels, config.width)
        self.position = nn.Parameter(0.02 * torch.randn(config.patches, config.width))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        hidden = self.project(patches) + self.position
        return self.norm(hidden)


class Attention(nn.Module):
    """Attention of one sequence to another."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.width, config.width)
        self.key_value = nn.Linear(config.width, 2 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: torch.Tensor, context: torch.Tensor, causal: bool) -> torch.Tensor:
        query = self.split(self.query(x))
        key, value = (self.split(part) for part in self.key_value(context).chunk(2, dim=-1))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    """Two layers with a gate."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.enter = nn.Linear(config.width, 4 * config.width)
        self.leave = nn.Linear(2 * config.width, config.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = self.enter(x).chunk(2, dim=-1)
        return self.leave(value * nn.functional.silu(gate))


class Block(nn.Module):
    """Self-attention, attention to the image, and a feed-forward part."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(config.width) for _ in range(3))
        self.own = Attention(config)
        self.image = Attention(config)
        self.forward_part = FeedForward(config)

    def forward(self, x: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        normed = self.norms[0](x)
        x = x + self.own(normed, normed, causal=True)
        x = x + self.image(self.norms[1](x), image, causal=False)
        return x + self.forward_part(self.norms[2](x))


class Decoder(nn.Module):
    """Predicts the next token of a caption."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocabulary, config.width)
        self.position = nn.Parameter(0.02 * torch.randn(config.longest, config.width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, tokens: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.position[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, image)
        return self.norm(x) @ self.embed.weight.T


class Captioner(nn.Module):
    """Encoder, decoder and the loss: what the script compiles."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.encoder = PatchEncoder(config)
        self.decoder = Decoder(config)
        self.register_buffer("running_norm", torch.tensor(1.0))
        self.calls = 0

    def forward(self, patches: torch.Tensor, tokens: torch.Tensor, smoothing: float) -> torch.Tensor:
        self.calls += 1
        image = self.encoder(patches)
        if patches.shape[0] < 16:
            warnings.warn(f"a batch of {patches.shape[0]} is smaller than 16")  # noqa: B028 - the break to be mended
        print(f"images {patches.shape[0]} tokens {tokens.shape[1]}")
        image = self.limit(image)
        logits = self.decoder(tokens[:, :-1], image)
        log.info("logits %.2f", logits.detach().abs().mean().item())
        loss = self.loss(logits, tokens[:, 1:], smoothing)
        warm = min(1.0, 0.5 + 0.1 * self.config.warmup)
        return loss * warm / math.sqrt(self.running_norm.item()) + self.z_loss(logits)

    def limit(self, image: torch.Tensor) -> torch.Tensor:
        """The image's vectors, pulled back where they have grown."""
        size = image.norm(dim=-1).mean()
        if size > 5.5:
            image = image * (5.5 / size)
        return image

    def loss(self, logits: torch.Tensor, target: torch.Tensor, smoothing: float) -> torch.Tensor:
        """Cross-entropy of the tokens that are not padding."""
        each = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
        spread = -logits.log_softmax(dim=-1).mean(dim=-1).flatten()
        each = (1 - smoothing) * each + smoothing * spread
        kept = target.flatten() != PAD
        return (each * kept).sum() / int(kept.sum())

    def z_loss(self, logits: torch.Tensor) -> torch.Tensor:
        """A penalty on the normalizer, which keeps logits small."""
        return self.config.z_loss * logits.logsumexp(dim=-1).square().mean()


def batches(config: Config, count: int, seed: int):
    """Images whose patches tell the tokens of their captions, with padding behind."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(config.vocabulary, config.channels, generator=generator)
    for number in range(count):
        length = 7 if number % 3 else 9
        tokens = torch.randint(2, config.vocabulary, (8, length), generator=generator)
        tokens[:, 0] = START
        lengths = torch.randint(4, length + 1, (8, 1), generator=generator)
        tokens = tokens.masked_fill(torch.arange(length) >= lengths, PAD)
        told = table[tokens].mean(dim=1, keepdim=True)
        noise = torch.randn(8, config.patches, config.channels, generator=generator)
        yield told + 0.3 * noise, tokens


def parameter_groups(model: nn.Module, decay: float) -> list[dict]:
    """Matrices with weight decay; norms, biases and positions without."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    return [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]


@torch.no_grad()
def captions(model: Captioner, patches: torch.Tensor, length: int) -> torch.Tensor:
    """Greedy captions: the most probable token at each place."""
    image = model.encoder(patches)
    tokens = torch.full((patches.shape[0], 1), START)
    for _ in range(length - 1):
        logits = model.decoder(tokens, image)[:, -1]
        tokens = torch.cat([tokens, logits.argmax(dim=-1, keepdim=True)], dim=1)
    return tokens


def overlap(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The share of wanted tokens that are in the caption at any place."""
    kept = wanted > START
    hits = (wanted.unsqueeze(2) == found.unsqueeze(1)).any(dim=2) & kept
    return (hits.sum() / kept.sum().clamp(min=1)).item()


@torch.no_grad()
def evaluate(model: Captioner, config: Config, count: int) -> float:
    """The mean overlap of captions of images that were not trained on."""
    model.eval()
    shares = [
        overlap(captions(model, patches, tokens.shape[1]), tokens)
        for patches, tokens in batches(config, count, seed=11)
    ]
    model.train()
    return sum(shares) / len(shares)


class Meter:
    """The mean of the last losses."""

    def __init__(self, window: int = 5) -> None:
        self.window = window
        self.values: list[float] = []

    def update(self, value: float) -> float:
        self.values = [*self.values, value][-self.window :]
        return sum(self.values) / len(self.values)


def learning_rate(config: Config, step: int) -> float:
    """Linear warm-up, then half a cosine down to a tenth."""
    warm = min(1.0, (step + 1) / config.warmup)
    done = min(1.0, max(0, step - config.warmup) / config.decay_steps)
    return config.learning_rate * warm * (0.55 + 0.45 * math.cos(math.pi * done))


def smoothing_of(config: Config, step: int) -> float:
    """The label smoothing of a step: it falls."""
    return config.label_smoothing / (1 + 0.25 * step)


def train_step(compiled, model, optimizer, batch, smoothing):
    """One step; returns the loss and the norm of the gradient."""
    patches, tokens = batch
    optimizer.zero_grad(set_to_none=True)
    loss = compiled(patches, tokens, smoothing)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    with torch.no_grad():
        model.running_norm.lerp_(norm, 0.1)
    return loss.item(), norm.item()


def count_parameters(model: nn.Module) -> str:
    """The number of parameters of each part, as one line of text."""
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def train(config: Config, steps: int, backend: str) -> list[float]:
    """Train and print a line for each step. Returns the seconds of the steps."""
    times = []
    model = Captioner(config)
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.AdamW(parameter_groups(model, config.weight_decay), lr=config.learning_rate)
    meter = Meter()
    print(count_parameters(model))
    for step, batch in enumerate(batches(config, steps, seed=3)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        began = time.perf_counter()
        loss, norm = train_step(compiled, model, optimizer, batch, smoothing_of(config, step))
        seconds = time.perf_counter() - began
        print(f"step {step} loss {loss:.3f} mean {meter.update(loss):.2f} norm {norm:.2f}")
        times.append(seconds)
    print(f"{model.calls} calls, overlap {evaluate(model, config, 2):.3f}")
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument(
        "--times", action="store_true", help="also print the time of a step, the shortest of the last half"
    )
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.manual_seed(0)
    times = train(Config(), args.steps, args.backend)
    if args.times:
        print(f"a step {1e3 * min(times[len(times) // 2 :]):.2f} ms")


if __name__ == "__main__":
    main()

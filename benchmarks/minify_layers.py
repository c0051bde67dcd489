"""Wall time of `dynadiag minify` on a training script with a transformers model of many layers.

    python benchmarks/minify_layers.py            # needs transformers
    python benchmarks/minify_layers.py --layers 30 --limit 300

The failure is in Dynamo, three modules deep: in the activation of the feed-forward part of a block. Exits with 1 if the
repro is not proved, needs transformers or took longer than ``--limit`` seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = '''
"""Trains a small language model, with an activation of its own."""
import argparse
import random
import statistics
from collections import deque

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel


class Activation(nn.Module):
    """GELU whose scale goes round."""

    def __init__(self, scales):
        super().__init__()
        self.scales = deque(scales)

    def scale(self):
        self.scales.rotate(1)
        return self.scales[0]

    def forward(self, x):
        return nn.functional.gelu(x) * self.scale()


class Head(GPT2LMHeadModel):
    """The model with its own activations."""

    def __init__(self, config, scales):
        super().__init__(config)
        for block in self.transformer.h:
            block.mlp.act = Activation(scales)


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.step = torch.compile(self.loss, backend="eager", fullgraph=True)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        self.losses = []

    def loss(self, tokens):
        logits = self.model(input_ids=tokens).logits[:, :-1]
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def fit(self, batches):
        for tokens in batches:
            self.optimizer.zero_grad()
            loss = self.step(tokens)
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())
        return statistics.fmean(self.losses)


def batches(count, size, length, words):
    rng = random.Random(0)
    for _ in range(count):
        yield torch.tensor([[rng.randrange(words) for _ in range(length)] for _ in range(size)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=LAYERS)
    options = parser.parse_args()
    torch.manual_seed(0)
    config = GPT2Config(n_layer=options.layers, n_head=2, n_embd=32, vocab_size=64, n_positions=16, eos_token_id=0)
    trainer = Trainer(Head(config, [1.0, 0.5]), 0.1)
    print(f"loss {trainer.fit(batches(2, 2, 8, 64)):.3f}")


if __name__ == "__main__":
    main()
'''


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=30, help="of the model")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that the command may take")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        program, repro, document = (folder / name for name in ("train.py", "repro.py", "m.json"))
        program.write_text(PROGRAM.replace("LAYERS", str(options.layers)))
        words = ["-o", repro, "--recording", folder / "m.dynadiag", "--json", document, program]
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "dynadiag", "minify", *map(str, words)], cwd=folder)
        seconds = time.monotonic() - began
        told = json.loads(document.read_text())
        text = repro.read_text() if repro.exists() else ""
    print(text)
    tokens = f"{told['tokens_before']} -> {told['tokens_after']} tokens"
    print(f"{options.layers} layers: {seconds:.0f} s, {tokens}, {told['trials']} trials, proved: {told['proved']}")
    return 0 if done.returncode == 0 and "transformers" not in text and seconds <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())

"""Distillation: a small model and an expensive loss that runs a larger, frozen model. Three ways to compile it.

`loss_eager` compiles the model and not the loss. `loss_apart` compiles model and loss separately. `one_module` puts
both into one module, so that there is one graph and Inductor can fuse across the two. The program checks that the
losses are the same, with `aot_eager`, which is quick, or with the backend that is its argument. Graphs, kernels and
times differ:

    dynadiag compare --train --modes as-written --also loss_apart,one_module samples/distillation_loss.py:loss_eager
    dynadiag compare --train samples/distillation_loss.py:one_module
"""

from __future__ import annotations

import hashlib
import sys

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it
from vit_amp import DEVICE, ViT, batch

TEMPERATURE = 2.0
STEPS = 2

Call = tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]


class DistillationLoss(nn.Module):
    """(logits, images, labels) -> cross entropy plus the divergence from the teacher's logits."""

    def __init__(self, teacher: nn.Module) -> None:
        super().__init__()
        self.teacher = teacher.requires_grad_(False)

    def forward(self, logits: torch.Tensor, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            target = F.log_softmax(self.teacher(images) / TEMPERATURE, dim=-1)
        told = F.log_softmax(logits / TEMPERATURE, dim=-1)
        apart = F.kl_div(told, target, log_target=True, reduction="batchmean")
        return F.cross_entropy(logits, labels) + TEMPERATURE**2 * apart


class Both(nn.Module):
    """The model with its loss: (images, labels) -> loss."""

    def __init__(self, student: nn.Module, loss: nn.Module) -> None:
        super().__init__()
        self.student, self.loss = student, loss

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.loss(self.student(images), images, labels)


def parts() -> tuple[nn.Module, nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """Return student, loss and a batch, the same in each call."""
    torch.manual_seed(0)
    student, teacher = ViT(width=32, depth=1), ViT(width=64, depth=2)
    return student.to(DEVICE), DistillationLoss(teacher.eval()).to(DEVICE), batch()


def uncompiled() -> Call:
    student, loss, data = parts()
    return Both(student, loss), data


def loss_eager(backend: str = "inductor") -> Call:
    student, loss, data = parts()
    return Both(torch.compile(student, backend=backend), loss), data


def loss_apart(backend: str = "inductor") -> Call:
    student, loss, data = parts()
    return Both(torch.compile(student, backend=backend), torch.compile(loss, backend=backend)), data


def one_module(backend: str = "inductor") -> Call:
    student, loss, data = parts()
    return torch.compile(Both(student, loss), backend=backend), data


def losses(call: Call) -> list[float]:
    """Return the loss of each of STEPS training steps."""
    step, data = call
    optimizer = torch.optim.SGD((one for one in step.parameters() if one.requires_grad), lr=0.1)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = step(*data)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def main(backend: str = "aot_eager") -> None:
    hashed, expected = hashlib.sha256(), losses(uncompiled())
    for way in (loss_eager, loss_apart, one_module):
        found = losses(way(backend))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        print(f"{way.__name__}: " + ", ".join(f"{loss:.4f}" for loss in found))
        hashed.update(repr(found).encode())
    print("result", hashed.hexdigest()[:16])


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The best of several choices, computed wrongly by compiled code: a difference that no tolerance explains.

A history of costs is shifted in place, each row taking the values of the previous row. Then `argmin` picks the choice
with the least sum over the history. Nothing fails and nothing is rounded, but compiled code overwrites rows before they
are read, so other choices come out best. The program prints for how many tasks the compiled choice differs, and exits
with code 0, as a training run would. (Whether it differs depends on torch's version and device: it does on torch 2.13
and a CPU, after pytorch#197829.)

    dynadiag bisect --accuracy samples/argmin_numerics.py
    dynadiag minify --accuracy -o repro.py samples/argmin_numerics.py
"""

from __future__ import annotations

import hashlib

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS, TASKS, CHOICES = 3, 16, 16


def best(history: torch.Tensor) -> torch.Tensor:
    """(STEPS, TASKS, CHOICES), shifted in place -> the best choice of each task."""
    history[1:] = history[:-1].clone()
    return history.sum(dim=0).argmin(dim=1)


def main() -> None:
    torch.manual_seed(0)
    history = torch.rand(STEPS, TASKS, CHOICES, device=DEVICE)
    expected = best(history.clone())
    result = torch.compile(best)(history.clone())
    wrong = int((result != expected).sum())
    print(f"another choice than without compiling: {wrong} of {TASKS}")
    print("result", hashlib.sha256(result.cpu().numpy().tobytes()).hexdigest()[:16])


if __name__ == "__main__":
    main()

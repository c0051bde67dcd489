"""threads of 2026: a fallback in try and except, with a context manager of one's own."""
import contextlib

import torch


@contextlib.contextmanager
def timed(store, name):
    store[name] = store.get(name, 0) + 1
    try:
        yield
    finally:
        store[name] += 1


STORE = {}


@torch.compile(backend="eager")
def solve(a, b):
    with timed(STORE, "solve"):
        try:
            x = torch.linalg.solve(a, b)
            if not torch.isfinite(x).all():
                raise ValueError("not finite")
        except ValueError:
            x = torch.linalg.lstsq(a, b).solution
    return x


for _ in range(2):
    solve(torch.eye(3), torch.ones(3, 1))

import torch


def score(x, n):
    return (x + n).relu().sum(-1)


compiled = torch.compile(score, backend="eager", dynamic=False)
compiled(torch.randn(4, 8), 1)
torch.compiler.set_stance("eager_on_recompile")
for size in (4, 6, 8, 10):
    compiled(torch.randn(size, 8), 1)

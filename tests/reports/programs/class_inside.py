import torch


def scale(x, w):
    y = torch.relu(x @ w) * 0.5

    class Result:
        def __init__(self, value):
            self.value = value

    result = Result(y)
    return torch.tanh(result.value) + x


compiled = torch.compile(scale, backend="eager")
for _ in range(4):
    compiled(torch.randn(8, 8), torch.randn(8, 8))

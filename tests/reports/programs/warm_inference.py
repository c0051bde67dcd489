import torch, dynadiag
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
fast = torch.compile(model, backend="eager")
x = torch.randn(4, 8)
with torch.no_grad():
    for _ in range(3): fast(x)
dynadiag.warm()
with torch.inference_mode():
    for _ in range(3): fast(torch.randn(4, 8))

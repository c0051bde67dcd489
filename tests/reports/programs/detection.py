"""threads of 2025 (torchvision's detection): all breaks are in the library's forward."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "site-packages"))
import torch
from detlib import Detector

model = Detector(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()))
compiled = torch.compile(model, backend="eager")
with torch.no_grad():
    compiled(torch.randn(3, 4))

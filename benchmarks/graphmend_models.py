"""What `dynadiag fix` makes of the 21 offline models of GraphMend's artifact: breaks before and after, and recompiles.

    python benchmarks/graphmend_models.py FOLDER [--only REGEX] [--backend inductor]
    python benchmarks/graphmend_models.py FOLDER --steps   # then, on a GPU: a warm step without and with the overlay

Made for torch 2.12.1 and transformers 4.52.4, the versions of the artifact (savini98/CGO_AE_GraphMend). Sizes, inputs
and options of torch.compile are the artifact's: eval mode, no gradient, `dynamic=False`. Rows that share a model there
share it here, and it is searched once. A break is counted as there: graphs that the backend gets, less one. The
compiled model is called three times, so a change that makes the second call recompile shows. FOLDER keeps each overlay
and document; the table is printed.

`--steps` takes the overlays of FOLDER and times T5, Whisper and BART on a GPU with Inductor: with the artifact's small
sizes, and with the default sizes of the library's configurations. Each time is from a process of its own, without and
with the overlay in turn.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_VOCABULARY, _WIDTH, _INNER, _POSITIONS, _LENGTH = 128, 64, 128, 64, 8
_SECONDS = 7200

_PROGRAM = """import torch
from graphmend_models import model_and_inputs

torch.manual_seed(0)
model, inputs = model_and_inputs({name!r})
compiled = torch.compile(model, backend={backend!r}, dynamic=False)
for _ in range(3):
    with torch.no_grad():
        outputs = compiled(**inputs)
print(f"{{outputs[0].double().abs().mean().item():.6g}}")  # a mean of normalized numbers is rounding alone
"""
_COUNTED = """
import json, sys
import torch
from torch._dynamo import lookup_backend
from graphmend_models import model_and_inputs

torch.manual_seed(0)
model, inputs = model_and_inputs(sys.argv[1])
graphs, after, outputs = [], [], []

def backend(graph, inputs):
    graphs.append(graph)
    return lookup_backend(sys.argv[3])(graph, inputs)

compiled = torch.compile(model, backend=backend, dynamic=False)
for _ in range(3):
    torch.manual_seed(0)
    with torch.no_grad():
        outputs.append(compiled(**inputs)[0])
    after.append(len(graphs))
torch.save(outputs, sys.argv[2])
print(json.dumps(after))
"""
_STEP = """
import statistics, sys, time
import torch
from graphmend_models import full_model_and_inputs, model_and_inputs

for build in (model_and_inputs, full_model_and_inputs):
    torch.manual_seed(0)
    model, inputs = build(sys.argv[1])
    model, inputs = model.cuda(), {name: value.cuda() for name, value in inputs.items()}
    compiled, times = torch.compile(model, dynamic=False), []
    with torch.no_grad():
        for _ in range(40):
            torch.cuda.synchronize()
            began = time.perf_counter()
            compiled(**inputs)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
    print(1000 * statistics.median(times[10:]))
    torch._dynamo.reset()
"""
_STEP_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Row:
    """Models of the artifact that share one build, with the breaks that it counts before and after its own changes."""

    rows: tuple[str, ...]
    build: Callable[[], tuple[torch.nn.Module, dict[str, Any]]]
    before: int
    after: int


def _built(name: str, config: str, **fields: Any) -> torch.nn.Module:
    transformers = importlib.import_module("transformers")
    model: torch.nn.Module = getattr(transformers, name)(getattr(transformers, config)(**fields))
    return model.eval()


def _ids(low: int = 0, length: int = _LENGTH) -> torch.Tensor:
    """Token numbers, int64, of shape (1, length)."""
    return torch.randint(low, _VOCABULARY, (1, length))


def _two_stacks(name: str, config: str, low: int = 0, **fields: Any) -> tuple[torch.nn.Module, dict[str, Any]]:
    """An encoder and a decoder of two layers each."""
    sizes = {
        f"{side}_{field}": value
        for side in ("encoder", "decoder")
        for field, value in (("layers", 2), ("attention_heads", 2), ("ffn_dim", _INNER))
    }
    fields = {"max_position_embeddings": _POSITIONS, **fields}
    model = _built(name, config, vocab_size=_VOCABULARY, d_model=_WIDTH, **sizes, **fields)
    return model, {"input_ids": _ids(low), "decoder_input_ids": _ids(low)}


def _one_stack(name: str, config: str, length: int = _LENGTH, **fields: Any) -> tuple[torch.nn.Module, dict[str, Any]]:
    sizes = {"hidden_size": _WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": _INNER}
    fields = {"max_position_embeddings": _POSITIONS, **fields}
    return _built(name, config, vocab_size=_VOCABULARY, **sizes, **fields), {"input_ids": _ids(length=length)}


def _t5() -> tuple[torch.nn.Module, dict[str, Any]]:
    sizes = {"d_model": _WIDTH, "d_ff": _INNER, "num_layers": 2, "num_heads": 2, "d_kv": 32}
    model = _built("T5ForConditionalGeneration", "T5Config", vocab_size=_VOCABULARY, **sizes)
    return model, {"input_ids": _ids(), "decoder_input_ids": _ids()}


def _whisper() -> tuple[torch.nn.Module, dict[str, Any]]:
    positions = {"max_source_positions": 64, "max_target_positions": 64}
    tokens = {"decoder_start_token_id": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    name, config = "WhisperForConditionalGeneration", "WhisperConfig"
    model, inputs = _two_stacks(name, config, num_mel_bins=80, **positions, **tokens)
    return model, {"input_features": torch.randn(1, 80, 128), "decoder_input_ids": inputs["decoder_input_ids"]}


def _pegasus() -> tuple[torch.nn.Module, dict[str, Any]]:
    sizes = {"decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": _INNER}
    fields = {"vocab_size": _VOCABULARY, "d_model": _WIDTH, "max_position_embeddings": _POSITIONS}
    return _built("PegasusForCausalLM", "PegasusConfig", **fields, **sizes), {"input_ids": _ids()}


def _layout() -> tuple[torch.nn.Module, dict[str, Any]]:
    """Text alone; the four coordinates and two sizes of a box have 64 features together."""
    boxes = {"max_2d_position_embeddings": 1024, "coordinate_size": 8, "shape_size": 16}
    image = {"input_size": 32, "patch_size": 16, "visual_embed": False}
    model, inputs = _one_stack("LayoutLMv3Model", "LayoutLMv3Config", **boxes, **image)
    return model, {**inputs, "bbox": torch.zeros(1, _LENGTH, 4, dtype=torch.long)}


def _phi3() -> tuple[torch.nn.Module, dict[str, Any]]:
    """With rotary embeddings of the kind "longrope", whose frequencies depend on the length of the sequence."""
    factors = _WIDTH // 2 // 2
    rope = {"type": "longrope", "short_factor": [1.0] * factors, "long_factor": [2.0] * factors}
    fields = {"num_key_value_heads": 2, "original_max_position_embeddings": 16, "pad_token_id": 0}
    return _one_stack("Phi3ForCausalLM", "Phi3Config", rope_scaling=rope, **fields)


def _grounding_dino() -> tuple[torch.nn.Module, dict[str, Any]]:
    transformers = importlib.import_module("transformers")
    image = {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [1, 1]}
    backbone = transformers.SwinConfig(**image, window_size=2, out_features=["stage1", "stage2"])
    sizes = {"hidden_size": _WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": _INNER}
    text = transformers.BertConfig(vocab_size=_VOCABULARY, max_position_embeddings=_POSITIONS, **sizes)
    stacks = {
        f"{side}_{field}": value
        for side in ("encoder", "decoder")
        for field, value in (("layers", 1), ("attention_heads", 2), ("ffn_dim", _INNER))
    }
    fields = {"d_model": _WIDTH, "num_queries": 4, "num_feature_levels": 2, "use_timm_backbone": False, **stacks}
    name, config = "GroundingDinoModel", "GroundingDinoConfig"
    model = _built(name, config, backbone_config=backbone, text_config=text, **fields)
    return model, {"pixel_values": torch.randn(1, 3, 32, 32), "input_ids": _ids()}


def _clap() -> tuple[torch.nn.Module, dict[str, Any]]:
    """With the fusion of long recordings, where its breaks are."""
    transformers = importlib.import_module("transformers")
    config = transformers.ClapConfig()
    sizes = {"hidden_size": _WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": _INNER}
    for field, value in {"vocab_size": _VOCABULARY, **sizes}.items():
        setattr(config.text_config, field, value)
    config.projection_dim, config.audio_config.enable_fusion = 32, True
    model = transformers.ClapModel(config).eval()
    audio = torch.randn(1, 4, 1001, config.audio_config.num_mel_bins)
    mask, longer = torch.ones(1, _LENGTH, dtype=torch.long), torch.ones(1, 1, dtype=torch.bool)
    return model, {"input_ids": _ids(), "attention_mask": mask, "input_features": audio, "is_longer": longer}


_START = {"decoder_start_token_id": 2, "pad_token_id": 1}
ROWS = {
    "t5": Row(("t5-small", "t5-base", "t5-3b", "flan-t5-large", "inclusively-reformulation-it5"), _t5, 3, 0),
    "whisper": Row(("whisper", "whisper-small", "whisper-base"), _whisper, 3, 0),
    "bart": Row(
        ("bart", "bart-base", "rebel-large"),
        lambda: _two_stacks("BartForConditionalGeneration", "BartConfig", low=3),
        3,
        0,
    ),
    "biogpt": Row(("biogpt",), lambda: _one_stack("BioGptForCausalLM", "BioGptConfig"), 2, 0),
    "blenderbot": Row(
        ("blenderbot-400M-distill",),
        lambda: _two_stacks("BlenderbotForConditionalGeneration", "BlenderbotConfig"),
        3,
        0,
    ),
    "marian": Row(
        ("opus-mt-fr-en",), lambda: _two_stacks("MarianMTModel", "MarianConfig", low=3, **_START), 3, 0
    ),
    "pegasus": Row(("PegasusForCausalLM",), _pegasus, 2, 0),
    "layoutlmv3": Row(("layoutlmv3-base",), _layout, 2, 0),
    "phi3": Row(("Phi-4-mini-instruct",), _phi3, 5, 0),
    "grounding-dino": Row(("grounding-dino", "grounding-dino-base"), _grounding_dino, 16, 7),
    "longformer": Row(
        ("longformer-base-4096",),
        lambda: _one_stack(
            "LongformerModel", "LongformerConfig", length=20, max_position_embeddings=512, attention_window=8
        ),
        5,
        3,
    ),
    "clap": Row(("clap-htsat-fused",), _clap, 2, 2),
}  # fmt: skip


def model_and_inputs(name: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The small model of a row with random weights, and its inputs."""
    return ROWS[name].build()


_FULL = {
    "t5": ("T5ForConditionalGeneration", "T5Config", "input_ids"),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", "input_features"),
    "bart": ("BartForConditionalGeneration", "BartConfig", "input_ids"),
}


def full_model_and_inputs(name: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    """A model of the sizes that its configuration has by default, with random weights, for 128 tokens or 30 seconds."""
    model_name, config, argument = _FULL[name]
    first = torch.randn(1, 80, 3000) if argument == "input_features" else _ids(low=3, length=128)
    return _built(model_name, config), {argument: first, "decoder_input_ids": _ids(low=3, length=128)}


def main() -> None:
    """Search each model, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument(
        "--backend", default="eager", help="with which the program compiles; each wants a FOLDER of its own"
    )
    parser.add_argument("--steps", action="store_true", help="time the overlays of FOLDER on a GPU")
    args = parser.parse_args()
    if args.steps:
        _print_steps(args.folder.absolute(), args.only)
        return
    args.folder.mkdir(parents=True, exist_ok=True)
    print("| model | rows | breaks before | GraphMend's after | ours after | graphs of call 1, 2, 3 | results |")
    print("|---|---|---|---|---|---|---|")
    totals = [0, 0, 0, 0]
    for name, row in ROWS.items():
        if not re.search(args.only, name):
            continue
        result = args.folder / f"{name}.json"
        if not result.exists():
            result.write_text(json.dumps(_measured(name, args.folder.absolute(), args.backend), indent=1))
        found = json.loads(result.read_text())
        before, after = found["before"][0] - 1, found["after"][0] - 1
        count = len(row.rows)
        totals = [total + count * value for total, value in zip(totals, (1, before, row.after, after), strict=True)]
        graphs = ", ".join(map(str, found["after"]))
        print(f"| {name} | {count} | {before} | {row.after} | {after} | {graphs} | {found['results']} |", flush=True)
    print(f"| all | {totals[0]} | {totals[1]} | {totals[2]} | {totals[3]} | | |")


def _measured(name: str, folder: Path, backend: str) -> dict[str, Any]:
    """The graphs after each of three calls, without and with the overlay, and how far the results are apart."""
    overlay = folder / f"{name}.overlay.py"
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "program.py").write_text(_PROGRAM.format(name=name, backend=backend))
        (place / "counted.py").write_text(_COUNTED)
        shutil.copy(Path(__file__), place)
        before = _counted(place, name, "before.pt", backend)
        options = ["--json", str(folder / f"{name}.fix.json"), "--force", "--overlay", str(overlay)]
        with (folder / f"{name}.log").open("w") as log:
            _run(["-m", "dynadiag", "fix", *options, "program.py"], place, stdout=log, stderr=log)
        if not overlay.exists():
            return {"before": before, "after": before, "results": "no overlay"}
        after = _counted(place, name, "after.pt", backend, str(overlay))
        pairs = zip(torch.load(place / "before.pt"), torch.load(place / "after.pt"), strict=True)
        same = all(torch.equal(*pair) for pair in pairs)
    return {"before": before, "after": after, "results": "same bits" if same else "not the same bits"}


def _counted(place: Path, name: str, outputs: str, backend: str, overlay: str | None = None) -> list[int]:
    words = ["-m", "dynadiag", "run", "--overlay", overlay] if overlay else []
    done = _run([*words, "counted.py", name, outputs, backend], place, stdout=subprocess.PIPE)
    counts: list[int] = json.loads(done.stdout.splitlines()[-1])
    return counts


def _print_steps(folder: Path, only: str) -> None:
    """Time warm steps of the models of `_FULL`, in milliseconds."""
    names = list(filter(re.compile(only).search, _FULL))
    overlays = {name: (None, str(folder / f"{name}.overlay.py")) for name in names}
    with ThreadPoolExecutor() as pool:  # these fill Inductor's cache; their times are dropped
        list(pool.map(lambda pair: _steps(*pair), [(name, each) for name in names for each in overlays[name]]))
    print("| model | sizes | without, ms | with the overlay, ms | ratio |\n|---|---|---|---|---|")
    for name in names:
        turns = [[_steps(name, overlay) for overlay in overlays[name]] for _ in range(_STEP_ROUNDS)]
        for number, sizes in enumerate(("small", "full")):
            pairs = [(plain[number], changed[number]) for plain, changed in turns]
            ratio = statistics.median(before / after for before, after in pairs)
            before, after = map(statistics.median, zip(*pairs, strict=True))
            print(f"| {name} | {sizes} | {before:.2f} | {after:.2f} | {ratio:.2f} |", flush=True)


def _steps(name: str, overlay: str | None) -> list[float]:
    """Time a warm step of the small model and of the full model in a fresh process, in milliseconds."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "step.py").write_text(_STEP)
        shutil.copy(Path(__file__), place)
        words = ["-m", "dynadiag", "run", "--overlay", overlay] if overlay else []
        return [float(line) for line in _run([*words, "step.py", name], place, stdout=subprocess.PIPE).stdout.split()]


def _run(words: list[str], place: Path, **streams: Any) -> subprocess.CompletedProcess[str]:
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=place, env=environment, text=True, timeout=_SECONDS, check=False, **streams)


if __name__ == "__main__":
    main()

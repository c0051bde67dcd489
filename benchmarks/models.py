"""Explain on twelve models: does it account for every break and recompile that torch logged?

Each model is built from a small configuration with random weights (nothing is downloaded), compiled, and called with
three sequence lengths and two batch sizes under the recorder. What the explanation says is then held against the events
of the trace in the same recording: one entry for each break event, one root for each distinct site, the model's own
source line for each root (or, where torch compiles a function of its own, the line that called it), and for each
recompile the guards that failed, with both values and a line.

    python benchmarks/models.py                    # all of them, as a table
    python benchmarks/models.py bert whisper       # some
    python benchmarks/models.py --write docs/models.md
"""

from __future__ import annotations

import _paths  # noqa: F401 - for what it does to sys.path

# isort: split

import argparse
import contextlib
import io
import json
import linecache
import os
import re
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

import dynadiag
from dynadiag.render.report import report

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LENGTHS, BATCHES = (8, 12, 20), (2, 3)
VOCABULARY = 64
_NEEDED = ("source", "was", "now", "file", "line")  # of each reason of a recompile
_SHOWN = 2  # changes that the page names for one recompile
Calls = Iterator[tuple[str, Callable[[], object]]]

__all__ = ["MODELS", "Outcome", "study"]


def shapes() -> Iterator[tuple[int, int]]:
    """(batch, length), the length changing fastest."""
    return ((batch, length) for batch in BATCHES for length in LENGTHS)


def ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(4, VOCABULARY, (batch, length), device=DEVICE)


def small(**more: Any) -> dict[str, Any]:
    """The settings that most configurations share, small."""
    common = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    return {**common, "intermediate_size": 48, "max_position_embeddings": 64, **more}


def compiled(model: torch.nn.Module) -> Callable[..., Any]:
    return torch.compile(model.to(DEVICE).eval(), backend="eager")


def bert() -> Calls:
    model = compiled(transformers.BertModel(transformers.BertConfig(**small())))
    return (
        (f"{b}x{n}", lambda b=b, n=n: model(ids(b, n), attention_mask=torch.ones(b, n, device=DEVICE)))
        for b, n in shapes()
    )


def gpt2_with_loss() -> Calls:
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    model = compiled(transformers.GPT2LMHeadModel(config))

    def call(b: int, n: int) -> object:
        x = ids(b, n)
        return model(x, labels=x)

    return ((f"{b}x{n}", lambda b=b, n=n: call(b, n)) for b, n in shapes())


def llama_with_static_cache() -> Calls:
    config = transformers.LlamaConfig(**small(num_key_value_heads=2))
    model = compiled(transformers.LlamaForCausalLM(config))

    def call(b: int, n: int) -> object:
        cache = transformers.StaticCache(config=config, max_cache_len=32)
        x = ids(b, n)
        model(x, past_key_values=cache, cache_position=torch.arange(n, device=DEVICE))
        return model(x[:, -1:], past_key_values=cache, cache_position=torch.tensor([n], device=DEVICE))

    return ((f"{b}x{n}", lambda b=b, n=n: call(b, n)) for b, n in shapes())


def t5() -> Calls:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    model = compiled(transformers.T5ForConditionalGeneration(config))
    return ((f"{b}x{n}", lambda b=b, n=n: model(input_ids=ids(b, n), labels=ids(b, n // 2))) for b, n in shapes())


def vit() -> Calls:
    config = transformers.ViTConfig(**_without_words(), image_size=32, patch_size=8)
    model = compiled(transformers.ViTModel(config))

    def call(b: int, n: int) -> object:
        return model(torch.randn(b, 3, 8 * n, 32, device=DEVICE), interpolate_pos_encoding=True)

    return ((f"{b}x{n}", lambda b=b, n=n: call(b, n // 4)) for b, n in shapes())


def _without_words() -> dict[str, Any]:
    return {key: value for key, value in small().items() if key not in ("vocab_size", "max_position_embeddings")}


def mamba() -> Calls:
    config = transformers.MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=4)
    model = compiled(transformers.MambaForCausalLM(config))
    return ((f"{b}x{n}", lambda b=b, n=n: model(ids(b, n))) for b, n in shapes())


def mixtral() -> Calls:
    config = transformers.MixtralConfig(**small(num_key_value_heads=2, num_local_experts=4))
    model = compiled(transformers.MixtralForCausalLM(config))
    return ((f"{b}x{n}", lambda b=b, n=n: model(ids(b, n))) for b, n in shapes())


def whisper() -> Calls:
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        num_mel_bins=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_source_positions=20,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = compiled(transformers.WhisperForConditionalGeneration(config))

    def call(b: int, n: int) -> object:
        return model(torch.randn(b, 8, 40, device=DEVICE), decoder_input_ids=ids(b, n))

    return ((f"{b}x{n}", lambda b=b, n=n: call(b, n)) for b, n in shapes())


def clip() -> Calls:
    config = transformers.CLIPConfig(
        text_config=small(eos_token_id=2),
        vision_config={**_without_words(), "image_size": 16, "patch_size": 8},
        projection_dim=16,
    )
    model = compiled(transformers.CLIPModel(config))

    def call(b: int, n: int) -> object:
        return model(ids(b, n), torch.randn(b, 3, 16, 16, device=DEVICE), return_loss=True)

    return ((f"{b}x{n}", lambda b=b, n=n: call(b, n)) for b, n in shapes())


def deberta_v2() -> Calls:
    config = transformers.DebertaV2Config(
        **small(relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, max_relative_positions=16)
    )
    model = compiled(transformers.DebertaV2Model(config))
    return ((f"{b}x{n}", lambda b=b, n=n: model(ids(b, n))) for b, n in shapes())


def bart_generate() -> Calls:
    config = transformers.BartConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_position_embeddings=64,
        forced_eos_token_id=None,
    )
    model = transformers.BartForConditionalGeneration(config).to(DEVICE).eval()
    model.forward = torch.compile(model.forward, backend="eager")

    def call(b: int, n: int) -> object:
        return model.generate(ids(b, n), max_new_tokens=3, num_beams=1, do_sample=False)

    return ((f"{b}x{n}", lambda b=b, n=n: call(b, n)) for b, n in shapes())


def training_step() -> Calls:
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    model = transformers.GPT2LMHeadModel(config).to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x, labels=x).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    whole = torch.compile(step, backend="aot_eager")
    return ((f"{b}x{n}", lambda b=b, n=n: whole(ids(b, n))) for b, n in shapes())


MODELS: dict[str, Callable[[], Calls]] = {
    "bert": bert,
    "gpt2 with loss": gpt2_with_loss,
    "llama with static cache": llama_with_static_cache,
    "t5": t5,
    "vit": vit,
    "mamba": mamba,
    "mixtral": mixtral,
    "whisper": whisper,
    "clip": clip,
    "deberta-v2": deberta_v2,
    "bart generate": bart_generate,
    "training step": training_step,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What explain said of one model, and each way in which that is not what the trace holds."""

    name: str
    document: dict[str, Any]
    events: int
    recompile_events: int
    seconds: float
    wrong: tuple[str, ...]
    sites: tuple[str, ...] = field(default=())


def study(name: str) -> Outcome:
    """Build a model, call it in each shape under the recorder, and check the explanation against the trace."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            calls = MODELS[name]()
            with dynadiag.record(Path(folder, "model.dynadiag")) as path:
                for _, call in calls:
                    call()
        seconds = time.perf_counter() - began
        with dynadiag.open(path) as recording:
            document = json.loads(report(recording).to_json())
            events = [recording.payload(event.index) for event in _artifacts(recording, "dynamo_graph_break_reason")]
            again = sum(1 for _ in _artifacts(recording, "recompile_reasons"))
    wrong = (*_wrong_breaks(document, events), *_wrong_recompiles(document, again))
    return Outcome(name, document, len(events), again, seconds, wrong, tuple(_sites(document)))


def _artifacts(recording: dynadiag.Recording, name: str) -> Iterable[Any]:
    return recording.events(kind="artifact", name=name)


def _roots(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in document["breaks"] if one["cause"] is None]


def _wrong_breaks(document: dict[str, Any], texts: list[str]) -> Iterator[str]:
    breaks, roots = document["breaks"], _roots(document)
    logged = [one for one in breaks if not one["fatal"]]
    if len(logged) != len(texts):
        yield f"{len(logged)} breaks for {len(texts)} break events"
    for one, text in zip(logged, texts, strict=False):
        told = set(re.findall(r'File "([^"\n]*)", line (\d+)', text)) | set(
            re.findall(r"in user code at (.*):(\d+)", text)
        )
        if (one["file"], str(one["line"])) not in told:
            yield f"{one['gb_id']} at {Path(one['file']).name}:{one['line']}, which torch's text does not name"
    sites = {_site(one) for one in breaks}
    if len(sites) != len(roots) or document["break_count"] != len(roots):
        yield f"{len(roots)} roots for {len(sites)} distinct sites"
    for root in roots:
        named = f"root {root['gb_id']} at {Path(root['file']).name}:{root['line']}"
        if _is_plumbing(root["file"]) and _caller(root) is None:
            yield f"{named} is torch's line, or Python's, and no line of the program leads to it"
        elif root["column"] is None or not _text(root)[root["column"] :].strip():
            yield f"{named} has no span on a line of source"


def _caller(root: dict[str, Any]) -> dict[str, Any] | None:
    """The program's line that called what torch compiled as a frame of its own (an optimizer's step, say)."""
    theirs = [frame for frame in root["user_stack"] if not _is_plumbing(frame["file"])]
    return theirs[-1] if theirs else None


def _site(one: dict[str, Any]) -> tuple[object, ...]:
    return tuple(one[key] for key in ("file", "line", "column", "end_line", "end_column", "gb_type"))


def _text(place: dict[str, Any]) -> str:
    return linecache.getline(place["file"], place["line"]).rstrip("\n")


def _is_plumbing(file: str) -> bool:
    folders = (Path(torch.__file__).parent, Path(sysconfig.get_path("stdlib")))
    inside = any(Path(file).is_relative_to(folder) for folder in folders)
    return inside and ("site-packages" not in file or Path(file).is_relative_to(folders[0]))


def _wrong_recompiles(document: dict[str, Any], events: int) -> Iterator[str]:
    if document["recompile_count"] != events:
        yield f"{document['recompile_count']} recompiles for {events} recompile events"
    for one in document["recompiles"]:
        name = f"recompile {one['compile_id']} of {one['function']}"
        if not one["reasons"]:
            yield f"{name} has no reason"
        for reason in one["reasons"]:
            lacks = [key for key in _NEEDED if reason[key] is None]
            if lacks:
                yield f"{name}: no {', '.join(lacks)} for {reason['guard'][:160]}"


def _sites(document: dict[str, Any]) -> Iterator[str]:
    for root in _roots(document):
        span = _text(root)[root["column"] : root["end_column"] if root["end_line"] == root["line"] else None]
        site = f"{root['gb_id']} {Path(root['file']).name}:{root['line']} `{span.strip()}` in `{root['function']}`"
        caller = _caller(root) if _is_plumbing(root["file"]) else None
        yield site + (f", called at {Path(caller['file']).name}:{caller['line']}" if caller else "")


def table(outcomes: Iterable[Outcome]) -> str:
    """A Markdown table, one row a model."""
    rows = [
        "| model | graphs | break events | breaks | roots | recompile events | recompiles | explained in full |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in outcomes:
        told = [_in_full(recompile) for recompile in one.document["recompiles"]]
        figures = (one.document["graph_count"], one.events, len(one.document["breaks"]), one.document["break_count"])
        cells = (*figures, one.recompile_events, len(told), f"{sum(told)} of {len(told)}")
        rows.append(f"| {one.name} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows) + "\n"


def _in_full(recompile: dict[str, Any]) -> bool:
    reasons = recompile["reasons"]
    return bool(reasons) and all(reason[key] is not None for reason in reasons for key in _NEEDED)


def page(outcomes: Iterable[Outcome]) -> str:
    """The section of the documentation for this torch: the table, the sites, what each recompile came from."""
    done = list(outcomes)
    lines = [
        f"## torch {torch.__version__.partition('+')[0]}, transformers {transformers.__version__}",
        "",
        table(done),
    ]
    lines += ["Sites of breaks:", ""]
    lines += [f"- {one.name}: {site}" for one in done for site in one.sites]
    lines += [
        "",
        "What changed before each recompile (of the entry made last; sizes, not the strides that follow them):",
        "",
    ]
    lines += [
        f"- {one.name} {recompile['compile_id']}: {_changed(recompile)}"
        for one in done
        for recompile in one.document["recompiles"]
    ]
    wrong = [f"- {one.name}: {sentence}" for one in done for sentence in one.wrong]
    return "\n".join([*lines, *(["", "Not as it should be:", "", *wrong] if wrong else []), ""])


def _changed(recompile: dict[str, Any]) -> str:
    """The failing guards of the newest entry, short."""
    reasons = recompile["reasons"]
    newest = [
        one for one in reasons if one["against"] == reasons[0]["against"] and ".stride()" not in str(one["source"])
    ]
    told = [
        f"`{one['source'] or one['guard']}` {one['was']} -> {one['now']}, line {_place(one)}" for one in newest[:_SHOWN]
    ]
    return "; ".join(told) + (f"; and {len(newest) - _SHOWN} more" if len(newest) > _SHOWN else "")


def _place(reason: dict[str, Any]) -> str:
    return f"{Path(reason['file']).name}:{reason['line']}" if reason["file"] else "unknown"


def put(path: Path, section: str) -> None:
    """Put a section into a page, in place of the one with the same heading."""
    text = path.read_text() if path.exists() else ""
    heading = section.partition("\n")[0]
    before, found, after = text.partition(heading + "\n")
    following = after.partition("\n## ")[2] if found else ""
    rest = f"\n## {following}" if following else ""
    path.write_text(f"{before.rstrip()}\n\n{section}{rest}".lstrip("\n"))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="put the results into this page of the documentation"
    )
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="keep each explanation as JSON there")
    args = parser.parse_args()
    chosen = [name for name in MODELS if not args.names or any(word in name for word in args.names)]
    if not chosen:
        parser.error(f"no model has a name like {', '.join(args.names)}: {', '.join(MODELS)}")
    outcomes = [_reported(name, args.json) for name in chosen]
    print(table(outcomes), end="")
    if args.write:
        put(args.write, page(outcomes))
    return int(any(outcome.wrong for outcome in outcomes))


def _reported(name: str, folder: Path | None) -> Outcome:
    outcome = study(name)
    print(f"{name}: {outcome.seconds:.1f} s, {len(outcome.wrong)} discrepancies", flush=True)
    for sentence in (*outcome.sites, *(f"WRONG {one}" for one in outcome.wrong)):
        print("   ", sentence)
    if folder:
        (folder / f"{name.replace(' ', '_')}.json").write_text(json.dumps(outcome.document, indent=1))
    return outcome


if __name__ == "__main__":
    sys.exit(main())

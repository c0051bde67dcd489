"""Write ``torch-VERSION.log.zst``: the ``TORCH_TRACE`` log of ``program.py`` on the torch that runs this.

    python tests/recording/logs/make.py

Folders of the machine are replaced, and the hashes of the payloads that they stood in are made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import zstandard

HERE = Path(__file__).parent
ENVIRONMENT = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
EVENT = re.compile(r"^[VDIWE]\d{4} .*?\] (?=\{)")


def traced(folder: Path) -> str:
    """The log of a run in a folder of its own, with caches that are empty."""
    (folder / "program.py").write_text((HERE / "program.py").read_text())
    places = {"TORCH_TRACE": folder / "trace", "TORCHINDUCTOR_CACHE_DIR": folder / "cache", "HOME": folder}
    variables = {**os.environ, **ENVIRONMENT, **{name: str(place) for name, place in places.items()}}
    subprocess.run([sys.executable, "program.py"], cwd=folder, env=variables, check=True)
    (log,) = (folder / "trace").glob("*.log")
    return log.read_text()


def elsewhere(text: str, folder: Path) -> str:
    """The text with the folders of another machine in it."""
    folders = {
        str(folder): "/home/user",
        sysconfig.get_path("purelib"): "/env/lib/python3/site-packages",
        sysconfig.get_path("stdlib"): "/usr/lib/python3",
        sys.prefix: "/env",
    }
    for own, other in folders.items():
        text = text.replace(own, other)
    return re.sub(rf"[\w/]*{folder.name}/program", "/home/user/program", text)  # torch cuts the front off some names


def rehashed(lines: list[str]) -> Iterator[str]:
    """The events with the hash of the payload that follows each."""
    starts = [number for number, line in enumerate(lines) if EVENT.match(line)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        head = EVENT.match(lines[start])
        metadata = json.loads(lines[start][head.end() :]) if head else {}
        payload = "\n".join(line.removeprefix("\t") for line in lines[start + 1 : end])
        if head and "has_payload" in metadata:
            metadata["has_payload"] = hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest()
            yield lines[start][: head.end()] + json.dumps(metadata)
        else:
            yield lines[start]
        yield from lines[start + 1 : end]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        text = elsewhere(traced(folder), folder)
    cleaned = "\n".join(rehashed(text.removesuffix("\n").split("\n"))) + "\n"
    version = torch.__version__.partition("+")[0]
    packed = zstandard.ZstdCompressor(level=19).compress(cleaned.encode())
    (HERE / f"torch-{version}.log.zst").write_bytes(packed)


if __name__ == "__main__":
    main()

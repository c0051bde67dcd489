"""A browser that is driven: Chromium through its driver, by the WebDriver protocol, without a package for it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from base64 import b64decode
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

__all__ = ["CHROMIUM", "DRIVER", "Browser"]

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
DRIVER = shutil.which("chromedriver") or ""
_OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--window-size=1400,900"),
)


class Browser:
    """A session of Chromium with a profile of its own. ``dark`` is the scheme that pages are asked for."""

    def __init__(self, *, dark: bool = False) -> None:
        self._dark = dark
        self._opener = build_opener(ProxyHandler({}))

    def __enter__(self) -> Browser:
        self._profile = tempfile.TemporaryDirectory(prefix="dynadiag-browser-", ignore_cleanup_errors=True)
        self._driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True)
        assert self._driver.stdout is not None
        told = next(found for line in self._driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
        self._url = f"http://127.0.0.1:{told[1]}"
        options = {"binary": CHROMIUM, "args": [*_OPTIONS, f"--user-data-dir={self._profile.name}"]}
        wanted: dict[str, Any] = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        wanted["timeouts"] = {"script": 120_000}
        made = self._send("/session", {"capabilities": {"alwaysMatch": wanted}})
        self._url += f"/session/{made['sessionId']}"
        scheme = {"name": "prefers-color-scheme", "value": "dark" if self._dark else "light"}
        self.command("Emulation.setEmulatedMedia", {"features": [scheme]})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._send("", method="DELETE")
        finally:
            self._driver.terminate()
            self._driver.communicate()
            self._profile.cleanup()

    def load(self, url: str) -> None:
        """Load a page, even where only the part after # is another one."""
        self._send("/url", {"url": "about:blank"})
        self._send("/url", {"url": url})

    def run(self, script: str) -> Any:
        """Run the body of an asynchronous function in the page. Returns its result."""
        body = "const done = arguments[arguments.length - 1]; (async () => {" + script + "})().then(done)"
        return self._send("/execute/async", {"script": body, "args": []})

    def wait(self, condition: str) -> None:
        """Wait until an expression is true. The driver's limit on a script ends a wait that is in vain."""
        self.run(f"while (!({condition})) await new Promise((next) => setTimeout(next, 20));")

    def press(self, *keys: str) -> None:
        """Press keys on what has the focus. Keys without a character have codes of the protocol."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._send("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def evaluate(self, script: str) -> Any:
        """Evaluate an expression as the developer tools do: the page's policy does not stop it."""
        asked = {"expression": script, "awaitPromise": True, "returnByValue": True}
        return self.command("Runtime.evaluate", asked)["result"].get("value")

    def command(self, name: str, parameters: dict[str, Any]) -> Any:
        """Run a command of the developer tools."""
        return self._send("/goog/cdp/execute", {"cmd": name, "params": parameters})

    def html(self) -> str:
        """The document as it is now."""
        return str(self.run("return document.documentElement.outerHTML"))

    def log(self) -> list[str]:
        """What pages logged since the last call."""
        return [entry["message"] for entry in self._send("/se/log", {"type": "browser"})]

    def screenshot(self, path: Path) -> None:
        """Write a picture of the window."""
        path.write_bytes(b64decode(self._send("/screenshot", method="GET")))

    def _send(self, path: str, data: dict[str, Any] | None = None, method: str = "POST") -> Any:
        body = json.dumps(data).encode() if data is not None else None
        asked = Request(self._url + path, body, {"Content-Type": "application/json"}, method=method)
        with self._opener.open(asked, timeout=300) as answer:
            return json.load(answer)["value"]

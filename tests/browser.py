"""A headless Chromium for tests of pages, driven over its DevTools protocol with the HTTP client that evalbias uses."""

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import aiohttp

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def program():
    """Path of the browser; None where none is installed."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """One page in one browser; use it in a ``with``.

    Attributes:
        messages: Console messages, errors and violations of the content policy, in order.
        requests: Addresses that the page asked for, its own left out.
    """

    def __init__(self, width=1000, height=900, *, dark=False):
        self._size, self._dark = (width, height), dark
        self.messages, self.requests = [], []

    def __enter__(self):
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--hide-scrollbars"]
        self._process = subprocess.Popen(
            [program(), *flags, f"--user-data-dir={self._profile.name}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._loop = asyncio.new_event_loop()
        try:
            port = self._port()
            self._run(self._connect(port))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception):
        if hasattr(self, "_session"):
            self._run(self._session.close())
        self._process.terminate()
        self._process.wait(timeout=120)
        self._loop.close()
        self._profile.cleanup()

    def open(self, file):
        """Load a file and wait until it is drawn."""
        self._address = Path(file).resolve().as_uri()
        loader = self.send("Page.navigate", url=self._address)["loaderId"]
        self._run(self._until(lambda: loader in self._loaded))
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def evaluate(self, script):
        """Return the value of an expression, or of the promise that it is."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key):
        """Press a key that writes nothing, such as Tab or Enter."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def hover(self, x, y):
        """Move the mouse."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def pdf(self, file):
        """Print the page."""
        answer = self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        Path(file).write_bytes(base64.b64decode(answer["data"]))

    def send(self, method, **params):
        """Send a command and return its result."""
        return self._run(self._send(method, **params))

    def _run(self, coroutine):
        return self._loop.run_until_complete(asyncio.wait_for(coroutine, 300))

    def _port(self):
        file = Path(self._profile.name) / "DevToolsActivePort"
        while self._process.poll() is None:
            if file.exists() and len(lines := file.read_text().split("\n")) > 1:  # the port, and a path
                return lines[0]
            time.sleep(0.01)
        raise RuntimeError("The browser did not start.")

    async def _page(self, port):
        """Return the address of the first page, which may open after the browser listens."""
        while True:
            async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                for target in await answer.json():
                    if target["type"] == "page":
                        return target["webSocketDebuggerUrl"]
            await asyncio.sleep(0.01)

    async def _connect(self, port):
        self._session, self._number, self._loaded = aiohttp.ClientSession(), 0, set()
        self._socket = await self._session.ws_connect(await self._page(port), max_msg_size=0)
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self._send(f"{domain}.enable")
        await self._send("Page.setLifecycleEventsEnabled", enabled=True)
        width, height = self._size
        device = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self._send("Emulation.setDeviceMetricsOverride", **device)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if self._dark else "light"}
        await self._send("Emulation.setEmulatedMedia", features=[scheme])

    async def _send(self, method, **params):
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = await self._receive()
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    async def _until(self, reached):
        while not reached():
            await self._receive()

    async def _receive(self):
        message = json.loads((await self._socket.receive()).data)
        method, params = message.get("method"), message.get("params", {})
        if method == "Page.lifecycleEvent" and params["name"] == "load":
            self._loaded.add(params["loaderId"])  # of this document; the empty page may be late
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(str(params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.messages.append(params["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.messages.append(f"dialog: {params['message']}")
        elif method == "Network.requestWillBeSent":
            address = params["request"]["url"]
            if not address.startswith(("data:", self._address)):
                self.requests.append(address)
        return message

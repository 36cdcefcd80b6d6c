"""A headless Chromium for tests, driven over its DevTools pipe with the standard library only.

    with Browser(find_chromium()) as browser:
        page = browser.open(path, width=390, dark=True)
        page.evaluate("document.title")
        page.screenshot("page.png")
        page.errors           # console errors and uncaught exceptions
"""
import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import queue

ANSWER_LIMIT = 60  # seconds


def find_chromium():
    """The path of a Chromium, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix="lockstep-browser-")
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4.
        command = (f'exec 3<&{to_child} 4>&{from_child}; exec "$0" "$@"')
        self.process = subprocess.Popen(
            ["bash", "-c", command, program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
             "--force-color-profile=srgb", f"--user-data-dir={self.folder}", "about:blank"],
            pass_fds=(to_child, from_child), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self._next = 0
        self._answers = {}
        self._listeners = []
        self._arrived = threading.Condition()
        threading.Thread(target=self._receive, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
        except (OSError, RuntimeError, TimeoutError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _receive(self):
        held = b""
        while True:
            try:
                data = os.read(self._read, 1 << 20)
            except OSError:
                return
            if not data:
                return
            held += data
            *messages, held = held.split(b"\0")
            for message in map(json.loads, messages):
                with self._arrived:
                    if "id" in message:
                        self._answers[message["id"]] = message
                    else:
                        for listener in self._listeners:
                            listener(message)
                    self._arrived.notify_all()

    def call(self, method, session=None, **parameters):
        self._next += 1
        number = self._next
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data):]
        with self._arrived:
            if not self._arrived.wait_for(lambda: number in self._answers, ANSWER_LIMIT):
                raise TimeoutError(f"Chromium did not answer {method} in {ANSWER_LIMIT} s")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, path, width=1440, height=900, dark=False, scripts=True):
        return Page(self, pathlib.Path(path).resolve(), width, height, dark, scripts)


class Page:
    def __init__(self, browser, path, width, height, dark, scripts):
        self.browser, self.width = browser, width
        self.errors = []
        self._events = queue.Queue()
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        with browser._arrived:
            browser._listeners.append(self._listen)
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.load(path)

    def _listen(self, message):
        if message.get("sessionId") != self.session:
            return
        method, about = message["method"], message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(about["exceptionDetails"].get("exception", about)))
        if method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(about["entry"]["text"])
        if method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning"):
            self.errors.append(str(about["args"]))
        if method == "Page.loadEventFired":
            self._events.put(method)

    def call(self, method, **parameters):
        return self.browser.call(method, session=self.session, **parameters)

    def load(self, path):
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for_load()

    def wait_for_load(self, limit=ANSWER_LIMIT):
        self._events.get(timeout=limit)

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, x1, x2, y):
        self.move(x1, y)
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x1, y=y, button="left", clickCount=1)
        for x in (x1 + (x2 - x1) / 2, x2):
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left")
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=x2, y=y, button="left", clickCount=1)

    def screenshot(self, path, whole=True, clip=None):
        if whole and clip is None:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": self.width, "height": size["height"]}
        options = {"clip": {**clip, "scale": 1}} if clip else {}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **options)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
        with self.browser._arrived:
            self.browser._listeners.remove(self._listen)

"""A headless Chromium, spoken to in its DevTools protocol over two pipes.

What a page asked of the network, wrote to the console or threw is kept, so that a test can say that
there was nothing.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"]
FLAGS = [
    "--headless=new", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
    "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-extensions", "--remote-debugging-pipe",
    # Whatever the browser itself may want of the world, it finds this machine alone.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]
VIRTUAL_KEYS = {"Enter": 13, "Escape": 27, "Tab": 9}


def find():
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    return None


def pipe():
    """Both ends above the numbers that the browser's ends get."""
    return [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in os.pipe()]


class Browser:
    def __init__(self, path):
        self.folder = tempfile.mkdtemp(prefix="fathom-console-")
        self.log = open(os.path.join(self.folder, "log"), "wb")
        to_read, self.to_write = pipe()
        self.from_read, from_write = pipe()

        def place_ends():
            os.dup2(to_read, 3)
            os.dup2(from_write, 4)

        flags = FLAGS + ["--user-data-dir=" + self.folder]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        self.process = subprocess.Popen(
            [path] + flags + ["about:blank"], preexec_fn=place_ends, pass_fds=(3, 4),
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(to_read)
        os.close(from_write)
        self.unread = b""
        self.last_id = 0
        self.events = []

    def close(self):
        self.process.terminate()
        self.process.wait(20)
        for end in (self.to_write, self.from_read):
            os.close(end)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self, timeout_s):
        """The next message, or None where none comes in time."""
        end = time.monotonic() + timeout_s
        while b"\0" not in self.unread:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.from_read], [], [], left)[0]:
                return None
            more = os.read(self.from_read, 1 << 16)
            if not more:
                raise RuntimeError("the browser ended")
            self.unread += more
        text, self.unread = self.unread.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **params):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message(60)
            if answer is None:
                raise RuntimeError(method + ": no answer")
            if answer.get("id") != self.last_id:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(method + ": " + answer["error"]["message"])
            else:
                return answer["result"]

    def page(self, width, height, mobile=False):
        return Page(self, width, height, mobile)


class Page:
    """A page in a browser context of its own: nothing is stored from one to the next."""

    def __init__(self, browser, width, height, mobile):
        self.browser = browser
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call(
            "Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call(
            "Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.answers = []
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(domain + ".enable")
        self.resize(width, height, mobile)

    def close(self):
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def resize(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=mobile)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, expression):
        """Of an expression in the page, awaited where it is a promise."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(expression + ": " + json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def wait(self, expression, timeout_s=60):
        """Until the expression is true; its value."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            found = self.value(expression)
            if found not in (None, False, "", 0):  # an element comes as {}
                return found
            self.serve_answers(0.02)
        raise AssertionError("waited %d s for %s; the page says: %s" % (
            timeout_s, expression, self.value("document.body.innerText")))

    def press(self, key, shift=False):
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        params = {"key": key, "modifiers": 8 if shift else 0,
                  "windowsVirtualKeyCode": VIRTUAL_KEYS.get(key, 0), "text": text}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **params)
        params.pop("text")
        self.call("Input.dispatchKeyEvent", type="keyUp", **params)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self, path):
        self.value("""new Promise((done) =>
                      requestAnimationFrame(() => requestAnimationFrame(done)))""")
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as out:
            out.write(base64.b64decode(data))

    def answer_instead(self, pattern, answers):
        """The next requests whose address fits get these bodies, as streams of events."""
        self.answers = list(answers)
        self.call("Fetch.enable", patterns=[{"urlPattern": pattern}])

    def serve_answers(self, timeout_s):
        message = self.browser.message(timeout_s)
        if message is not None:
            self.browser.events.append(message)
        for event in self.taken("Fetch.requestPaused"):
            body = self.answers.pop(0)
            self.call("Fetch.fulfillRequest", requestId=event["requestId"], responseCode=200,
                      responseHeaders=[{"name": "Content-Type", "value": "text/event-stream"}],
                      body=base64.b64encode(body.encode()).decode())
            if not self.answers:
                self.call("Fetch.disable")

    def taken(self, method):
        """Events of this page that came and were not taken yet."""
        mine = [e for e in self.browser.events
                if e.get("sessionId") == self.session and e["method"] == method]
        self.browser.events = [e for e in self.browser.events if e not in mine]
        return [e["params"] for e in mine]

    def complaints(self):
        """What the page threw or wrote to the console, and what the browser says of it."""
        found = [e["exceptionDetails"].get("exception", e["exceptionDetails"])
                 for e in self.taken("Runtime.exceptionThrown")]
        found += [e for e in self.taken("Runtime.consoleAPICalled")]
        found += [e["entry"] for e in self.taken("Log.entryAdded")]
        return found

    def requested(self):
        return [e["request"]["url"] for e in self.taken("Network.requestWillBeSent")]

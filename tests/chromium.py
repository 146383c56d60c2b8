"""A browser without a window, for tests of what is drawn and of what pages may do.

`browser` runs it once for a page. `tab` is one that goes on: it is driven over Chrome's own DevTools protocol, which a
browser speaks on two pipes if it is asked to. https://chromedevtools.github.io/devtools-protocol/
"""

import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from base64 import b64decode

import pytest

from tests.timeout import EVENT_TIMEOUT_S

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu")
GONE = frozenset(
    (
        "Inspected target navigated or closed",
        "Execution context was destroyed.",
        "Cannot find context with specified id",
    )
)


class PageHasGone(AssertionError):
    """The page in which an expression was to be evaluated has made room for the next one meanwhile."""


def found_browser():
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)} is on the path")
    return found


@pytest.fixture(scope="module")
def browser():
    """Call it with flags and an address; `--dump-dom` prints the page as its scripts have made it."""
    found = found_browser()

    def run(*arguments):
        command = [found, *FLAGS, "--virtual-time-budget=2000", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)

    return run


class Chromium:
    """A running browser. Its messages are read while a test waits for an answer or for a condition."""

    def __init__(self, profile):
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        with (profile / "browser.log").open("wb") as log:
            self._pid = os.posix_spawn(
                found := found_browser(),
                [found, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}/browser", "--no-first-run"],
                os.environ,
                file_actions=[
                    # It reads 3 and writes 4. Which of these numbers the pipes have is not known: away with them first.
                    (os.POSIX_SPAWN_DUP2, to_browser, 203),
                    (os.POSIX_SPAWN_DUP2, from_browser, 204),
                    (os.POSIX_SPAWN_DUP2, 203, 3),
                    (os.POSIX_SPAWN_DUP2, 204, 4),
                    (os.POSIX_SPAWN_CLOSE, 203),
                    (os.POSIX_SPAWN_CLOSE, 204),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                ],
                setpgroup=0,
            )
        os.close(to_browser)
        os.close(from_browser)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._from, selectors.EVENT_READ)
        self._unread = b""
        self._asked = 0
        self._answers = {}
        self.heard = []
        """Events: what pages of this browser have told, by their sessions."""

    def ask(self, method, session=None, **parameters):
        self._asked += 1
        number = self._asked
        request = {"id": number, "method": method, "params": parameters}
        if session is not None:
            request["sessionId"] = session
        os.write(self._to, json.dumps(request).encode() + b"\0")
        limit = time.monotonic() + EVENT_TIMEOUT_S
        while number not in self._answers:
            self.listen(limit)
        answer = self._answers.pop(number)
        if "error" in answer and answer["error"]["message"] in GONE:
            raise PageHasGone(method, parameters, answer["error"])
        assert "error" not in answer, (method, parameters, answer["error"])
        return answer["result"]

    def listen(self, limit):
        assert self._selector.select(max(0, limit - time.monotonic())), "the browser says nothing"
        data = os.read(self._from, 1 << 20)
        assert data, "the browser has ended"
        *messages, self._unread = (self._unread + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self.heard.append(message)

    def end(self):
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._selector.close()
        os.close(self._to)
        os.close(self._from)


class Tab:
    """A page of a running browser."""

    def __init__(self, chromium, width=1280, height=800):
        self._chromium = chromium
        self.forgives: tuple[str, ...] = ()
        """Prefixes of complaints that a test provokes on purpose."""
        self._target = chromium.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = chromium.ask("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.resize(width, height)

    def ask(self, method, **parameters):
        return self._chromium.ask(method, self._session, **parameters)

    def resize(self, width, height, is_phone=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone)

    def prefers(self, **features):
        """As the system of a user would say it: `color_scheme="dark"`, `reduced_motion="reduce"`."""
        told = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
        self.ask("Emulation.setEmulatedMedia", features=told)

    def open(self, address):
        self.ask("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def value(self, expression):
        """Return the value of a JavaScript expression in the page, after a promise is resolved."""
        told = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, (expression, told)
        return told["result"].get("value")

    def until(self, expression):
        """Wait until an expression is true, in this page or the next one, and return its value."""
        limit = time.monotonic() + EVENT_TIMEOUT_S
        while not (value := self._value_or_gone(expression)):
            shown = self._value_or_gone("document.body?.innerText") if time.monotonic() > limit else ""
            assert time.monotonic() <= limit, f"{expression} did not become true; the page shows:\n{shown}"
            time.sleep(0.05)
        return value

    def _value_or_gone(self, expression):
        try:
            return self.value(expression)
        except PageHasGone:
            return None

    def wait_for(self, look):
        """Wait until `look` returns a true value and return it. The page continues to run meanwhile."""
        limit = time.monotonic() + EVENT_TIMEOUT_S
        while not (found := look()):
            assert time.monotonic() <= limit, "it did not come"
            self.value("0")
            time.sleep(0.05)
        return found

    def press(self, *keys):
        """Keys by their names, such as `ArrowLeft`, or characters."""
        for key in keys:
            text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
            self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
            self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def point(self, selector, click=False):
        """Move the pointer to the middle of the first element that the selector finds."""
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = self.value(f"(box => [box.left + box.width / 2, box.top + box.height / 2])({box})")
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path):
        path.write_bytes(b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    @property
    def _heard(self):
        return [told for told in self._chromium.heard if told.get("sessionId") == self._session]

    @property
    def asked_for(self):
        """The addresses that the page has asked for."""
        told = [event["params"] for event in self._heard if event["method"] == "Network.requestWillBeSent"]
        return [event["request"]["url"] for event in told]

    @property
    def complaints(self):
        """Return uncaught exceptions and console errors: of scripts, styles and the page's policy."""
        found = []
        for event in self._heard:
            told = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(told["exceptionDetails"])
            elif event["method"] == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                if not told["entry"]["text"].startswith(self.forgives):
                    found.append(told["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
                found.append([argument.get("value") for argument in told["args"]])
        return found

    def close(self):
        self._chromium.ask("Target.closeTarget", targetId=self._target)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    running = Chromium(tmp_path_factory.mktemp("chromium"))
    yield running
    running.end()


@pytest.fixture
def tab(chromium):
    """A page that has opened nothing yet. A test fails if what it opens complains of anything."""
    tab = Tab(chromium)
    yield tab
    complaints = tab.complaints
    tab.close()
    assert not complaints

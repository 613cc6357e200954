"""The console as people use it: a real Chromium, `fathom serve` with the shipped model, a keyboard.

Goal: a message is answered as it is computed, shown word for word and stopped at will; the state
page shows the server's own figures and moves with them; nothing is asked of any other host, nothing
is thrown, nothing a model says becomes markup; all of it on a desk and on a phone. Method: the
DevTools protocol; what the page shows is compared with what plain requests get. Tool calls come
from the reference streams of tests/golden/chat/streams.jsonl, in the place of the server's answer.
"""

import argparse
import contextlib
import json
import os
import sys
import threading
import time
import unittest

import browser
import server

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KEY = "console-test-key-0123456789"
DESK = (1280, 800, False)
PHONE = (375, 812, True)
ASKED = "Write a Python function that adds the numbers of a list."
LAST = "[...document.querySelectorAll('article.answer')].at(-1)"
ENDED = LAST + "?.getAttribute('aria-busy') === 'false'"
options = None


def chat_body(text, **more):
    return {"messages": [{"role": "user", "content": text}], "reasoning_effort": "none", **more}


# Random words, that with this seed go on to the end of the context.
LONG = chat_body("Write on and on.", temperature=2, seed=1)


class ConsoleTest(unittest.TestCase):
    """What each test shares; a page is checked for complaints and foreign requests at its end."""

    size = DESK
    where = "desk"
    expected_statuses = ()

    @classmethod
    def setUpClass(cls):
        cls.browser = browser.Browser(options.browser)
        cls.addClassCleanup(cls.browser.close)
        cls.server = cls.start()
        cls.addClassCleanup(cls.server.close)

    @classmethod
    def start(cls, key=None):
        return server.Server(options.fathom, ["--sequences", "2", "--context", "4096"], key)

    def setUp(self):
        self.page = self.browser.page(*self.size)
        self.page.open(self.server.address + "/console")

    def tearDown(self):
        # A refused request is a line of the browser's own; what it was is checked by its test.
        complaints = [c for c in self.page.complaints()
                      if not any("status of %d" % s in str(c) for s in self.expected_statuses)]
        self.assertEqual(complaints, [])
        for url in self.page.requested():
            self.assertTrue(url.startswith(self.server.address + "/"), url)
        self.page.close()

    def shot(self, name):
        self.page.screenshot(os.path.join(options.work, "%s-%s.png" % (self.where, name)))

    def set(self, field, value):
        self.page.value("""{ const field = document.getElementById(%s); field.value = %s;
                             field.dispatchEvent(new Event('change')); }"""
                        % (json.dumps(field), json.dumps(value)))

    def send(self, text):
        self.page.wait("document.activeElement.id === 'message'")
        self.page.type(text)
        self.page.press("Enter")

    def text_of(self, selector):
        return self.page.value(
            LAST + "?.querySelector(%s)?.textContent ?? ''" % json.dumps(selector))

    def fits(self):
        wider = self.page.value("document.documentElement.scrollWidth - innerWidth")
        self.assertLessEqual(wider, 0)


class Chat(ConsoleTest):
    def test_an_answer_is_shown_word_for_word(self):
        self.page.wait("document.getElementById('served').textContent.startsWith('fathom-34m,')")
        self.set("effort", "none")
        self.set("temperature", "0")
        self.set("max-tokens", "60")
        status, whole = self.server.ask(
            "/v1/chat/completions", chat_body(ASKED, temperature=0, max_tokens=60))
        self.assertEqual(status, 200)
        self.send(ASKED)
        self.page.wait(ENDED)
        asked = self.page.value("document.querySelector('.user .text').textContent")
        self.assertEqual(asked, ASKED)
        wanted = whole["choices"][0]["message"]["content"]
        shown = self.page.value(LAST + ".querySelector('.content').innerText")
        self.assertEqual(shown.split(), wanted.replace("```", "").split())
        figures = self.page.value(LAST + ".querySelector('.figures').innerText")
        for figure in ("prompt", "cached", "replayed", "tokens/s"):
            self.assertIn(figure, figures)
        self.assertIn("%d" % whole["usage"]["prompt_tokens"], figures)
        self.fits()
        self.shot("answer")

    def test_thinking_comes_in_pieces(self):
        self.page.value("""{ window.lengths = new Set();
            const log = document.getElementById('log');
            new MutationObserver(() => lengths.add(log.textContent.length))
              .observe(log, {childList: true, subtree: true, characterData: true}); }""")
        self.set("max-tokens", "300")
        self.send("Think about the numbers from one to a hundred.")
        self.page.wait(ENDED)
        self.assertGreater(len(self.text_of(".thinking > div")), 0)
        self.assertGreater(self.page.value("lengths.size"), 5)
        self.shot("thinking")

    def test_esc_stops_an_answer(self):
        aborted = self.server.state()["requests"]["ended"]["abort"]
        self.set("effort", "none")
        self.set("temperature", "2")
        self.set("seed", str(LONG["seed"]))
        self.send(LONG["messages"][0]["content"])
        self.page.wait(LAST + "?.querySelector('.content')")
        self.assertFalse(self.page.value("document.getElementById('stop').hidden"))
        self.page.press("Escape")
        self.page.wait(ENDED)
        self.assertIn("stopped", self.text_of(".figures"))
        self.assertTrue(self.page.value("document.getElementById('stop').hidden"))
        end = time.monotonic() + 20
        while time.monotonic() < end:
            state = self.server.state()
            if state["requests"]["ended"]["abort"] > aborted:
                break
            time.sleep(0.05)
        self.assertEqual(state["requests"]["ended"]["abort"], aborted + 1)
        self.set("max-tokens", "4")
        self.send("And now?")  # the conversation goes on from what was said
        self.page.wait("document.querySelectorAll('article.answer').length === 2 && " + ENDED)

    def test_a_tool_call_is_a_card_and_its_result_goes_back(self):
        stream = stream_of("reasoning_call")
        self.page.answer_instead("*/v1/chat/completions", [stream])
        self.send("Which tools are there?")
        self.page.wait(ENDED)
        name = first_call(stream)
        self.assertEqual(self.text_of(".call h4 code"), name)
        json.loads(self.text_of(".call pre"))
        self.page.wait("document.activeElement.closest('.call')")  # the field of the result
        self.shot("tool")
        self.page.type("42")
        said = '{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":"stop"}]}'
        markup = "<img src=x onerror=alert(1)><script>alert(2)</script>"
        self.page.answer_instead(
            "*/v1/chat/completions", ["data: %s\n\ndata: [DONE]\n\n" % (said % markup)])
        self.page.value("document.querySelector('.results-send').click()")
        self.page.wait("document.querySelectorAll('article.answer').length === 2 && " + ENDED)
        self.assertEqual(self.text_of(".content .text"), markup)
        self.assertEqual(self.page.value("document.querySelectorAll('img, #log script').length"), 0)
        requests = [e["request"] for e in self.page.taken("Network.requestWillBeSent")]
        sent = [json.loads(r["postData"]) for r in requests if "chat/" in r["url"]]
        result = sent[-1]["messages"][-1]
        self.assertEqual(sent[-1]["messages"][-2]["tool_calls"][0]["function"]["name"], name)
        self.assertEqual((result["role"], result["content"]), ("tool", "42"))

    def test_the_keyboard_reaches_everything(self):
        reached = []
        for _ in range(14):
            self.page.press("Tab")
            reached.append(self.page.value(
                "document.activeElement.id || document.activeElement.tagName.toLowerCase()"))
            outline = self.page.value("getComputedStyle(document.activeElement).outlineStyle")
            if reached[-1] != "body":
                self.assertEqual(outline, "solid", reached[-1])
        for wanted in ("send", "fresh", "summary", "to-chat", "to-state", "key-open", "help-open"):
            self.assertIn(wanted, reached)
        self.page.value("document.activeElement.blur()")
        self.page.press("?")
        self.page.wait("document.getElementById('help-dialog').open")
        self.shot("help")
        self.page.press("Escape")
        self.page.wait("!document.getElementById('help-dialog').open")
        self.page.press(",")
        self.page.wait("document.activeElement.id === 'effort'")
        self.fits()
        self.shot("settings")
        self.page.press("Escape")  # leaves the field
        self.page.press("/")
        self.page.wait("document.activeElement.id === 'message'")
        self.page.type("one")
        self.page.press("Enter", shift=True)
        self.page.type("two")
        self.assertEqual(self.page.value("document.getElementById('message').value"), "one\ntwo")

    def test_all_that_can_be_used_has_a_name(self):
        self.page.value("document.getElementById('settings').open = true")
        roles = {"button", "link", "textbox", "combobox", "spinbutton", "log", "DisclosureTriangle"}
        nodes = self.page.call("Accessibility.getFullAXTree")["nodes"]
        used = [n for n in nodes if not n["ignored"] and n["role"]["value"] in roles]
        self.assertGreater(len(used), 10)
        for node in used:
            self.assertTrue(node.get("name", {}).get("value"), node)

    def test_text_stands_out_in_both_schemes(self):
        for scheme in ("light", "dark"):
            self.page.scheme(scheme)
            for selector in ("body", "#empty", "#served", "#send", "#to-chat"):
                self.assertGreaterEqual(self.page.value(CONTRAST % json.dumps(selector)), 4.5,
                                        scheme + " " + selector)


class Refused(ConsoleTest):
    expected_statuses = (400,)

    def test_a_refusal_is_shown_in_the_servers_words(self):
        self.set("effort", "none")
        self.set("max-tokens", "5000")
        status, body = self.server.ask("/v1/chat/completions", chat_body("Hello", max_tokens=5000))
        self.assertEqual(status, 400)
        self.send("Hello")
        shown = self.page.wait("document.querySelector('article.error')?.textContent")
        self.assertEqual(shown, "400 " + body["error"]["message"])
        self.assertEqual(self.page.value("document.getElementById('message').value"), "Hello")


class State(ConsoleTest):
    def setUp(self):
        super().setUp()
        self.page.press("Escape")
        self.page.press("s")
        self.page.wait("document.querySelectorAll('#memory tbody tr').length > 5")

    def cell(self, name):
        return self.page.value(
            """[...document.querySelectorAll('#state th')].find((th) =>
               th.textContent === %s)?.nextElementSibling?.textContent""" % json.dumps(name))

    def test_figures_move_with_the_server_and_are_its_own(self):
        before = self.cell("rows")
        for text in ("one", "two", ASKED * 8):
            self.server.ask("/v1/chat/completions", chat_body(text, max_tokens=8))
        self.page.wait("performance.now() > 0 && %s !== %s" % (ROWS, json.dumps(before)))
        time.sleep(2.5)  # at rest, so that page and state speak of the same moment
        state = self.server.state()
        self.assertEqual(number(self.cell("rows")), state["steps"]["rows"])
        self.assertEqual(number(self.cell("answered")), state["tokens"]["answered"])
        self.assertEqual(number(self.cell("Blocks idle in the cache")), state["blocks"]["cached"])
        self.assertGreater(state["blocks"]["cached"], 0)
        parts = self.page.value("[...document.querySelectorAll('#memory td:nth-child(3)')]"
                                ".map((td) => td.title)")
        self.assertEqual(sum(map(number, parts[:-1])), number(parts[-1]))
        held = state["blocks"]["total"] * state["blocks"]["bytes"]
        slots = state["windows"]["total"] * state["windows"]["bytes"]
        kept = state["others"]["session_bytes"]
        self.assertGreater(kept, 0)
        self.assertEqual(number(parts[-1]), held + slots + kept)  # at rest there is nothing else
        self.assertEqual(self.page.value("document.querySelector('#notes').textContent"),
                         "Ready. Nothing wants attention.")

    @contextlib.contextmanager
    def answers_one_after_the_other(self):
        """The page looks once a second: however fast the machine, it finds one that runs."""
        enough = threading.Event()

        def ask():
            while not enough.is_set():
                self.server.ask("/v1/chat/completions", {**LONG, "max_tokens": 700})

        running = threading.Thread(target=ask)
        running.start()
        try:
            yield
        finally:
            enough.set()
            running.join()

    def test_plots_show_what_runs(self):
        with self.answers_one_after_the_other():
            self.page.wait("document.querySelectorAll('#plots .plot svg path.line').length >= 5")
            self.page.wait(DECODING + " === '1'")
            self.fits()
            self.shot("state")
        self.page.wait(DECODING + " === '0'")
        label = self.page.value("document.querySelector('#plots svg').getAttribute('aria-label')")
        self.assertRegex(label, r"^Throughput in tokens/s, last five minutes: prefill now \S+,")
        most = self.page.value(
            "document.querySelector('#plots tbody').rows[1].cells[3].textContent")
        self.assertGreater(float(most), 0)
        self.page.value("document.getElementById('plots-title').scrollIntoView()")
        self.shot("plots")

    def test_what_is_selected_stays_selected(self):
        self.page.value("getSelection().selectAllChildren(document.getElementById('memory'))")
        selected = self.page.value("getSelection().toString()")
        self.page.value("new Promise((done) => setTimeout(done, 2500))")
        self.assertEqual(self.page.value("getSelection().toString()"), selected)
        self.assertIn("Blocks free", selected)

    def test_nothing_is_asked_once_the_page_is_left(self):
        self.page.press("c")
        self.page.wait("!document.getElementById('chat').hidden")
        self.page.value("new Promise((done) => setTimeout(done, 1200))")
        self.page.requested()
        self.page.value("new Promise((done) => setTimeout(done, 2500))")
        self.assertEqual(self.page.requested(), [])


class PhoneChat(Chat):
    size, where = PHONE, "phone"

    def test_a_narrow_phone_shows_all_of_it(self):
        self.page.resize(360, 640, True)
        self.page.value("document.getElementById('settings').open = true")
        self.fits()


class PhoneState(State):
    size, where = PHONE, "phone"


class DarkState(State):
    where = "dark"

    def setUp(self):
        super().setUp()
        self.page.scheme("dark")


class Keys(ConsoleTest):
    expected_statuses = (401,)

    @classmethod
    def start(cls):
        return super().start(KEY)

    def test_the_key_is_asked_for_and_used(self):
        self.page.wait("document.getElementById('key-dialog').open")
        self.assertEqual(
            self.page.value("document.getElementById('key-why').textContent"),
            "key: wanted Authorization: Bearer KEY or x-api-key: KEY, found neither")
        self.shot("key")
        self.page.type(KEY)
        self.page.press("Enter")
        self.page.wait("document.getElementById('served').textContent.startsWith('fathom-34m')")
        self.assertEqual(self.page.value("localStorage.length"), 0)
        self.page.value("document.activeElement.blur()")
        self.page.press("s")
        self.page.wait("document.querySelectorAll('#memory tbody tr').length > 5")


ROWS = """[...document.querySelectorAll('#state th')].find((th) => th.textContent === 'rows')
          .nextElementSibling.textContent"""
DECODING = ROWS.replace("rows", "decoding")

# Contrast of an element's text and what is behind it, after WCAG 2.2.
CONTRAST = """(() => {
  const light = (rgb) => rgb.match(/[0-9.]+/g).slice(0, 3).map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  let node = document.querySelector(%s);
  const ink = light(getComputedStyle(node).color);
  const clear = (n) => getComputedStyle(n).backgroundColor === "rgba(0, 0, 0, 0)";
  while (clear(node)) node = node.parentElement;
  const paper = light(getComputedStyle(node).backgroundColor);
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
})()"""


def number(text):
    return int("".join(c for c in text if c.isdigit()))


def stream_of(name):
    """The reference stream of this name, as the server would send it."""
    with open(os.path.join(ROOT, "tests/golden/chat/streams.jsonl"), encoding="utf-8") as lines:
        for case in map(json.loads, lines):
            if case["api"] == "chat" and case["name"] == name:
                data = [json.dumps(event) for _, event in case["events"]] + [case["done"]]
                return "".join("data: %s\n\n" % one for one in data)
    raise KeyError(name)


def first_call(stream):
    for line in stream.splitlines():
        if line.startswith("data: {"):
            delta = json.loads(line[6:])["choices"][0]["delta"]
            for call in delta.get("tool_calls") or []:
                return call["function"]["name"]
    return None


def main():
    global options
    parser = argparse.ArgumentParser()
    parser.add_argument("--fathom", required=True)
    parser.add_argument("--work", required=True, help="folder for screenshots")
    options, rest = parser.parse_known_args()
    options.browser = browser.find()
    if options.browser is None:
        print("skipped: wanted one of %s, found none" % ", ".join(browser.NAMES))
        sys.exit(77)
    os.makedirs(options.work, exist_ok=True)
    unittest.main(argv=[sys.argv[0]] + rest, verbosity=2)


if __name__ == "__main__":
    main()

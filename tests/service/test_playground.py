"""The playground in a real, headless Chromium; skipped where there is none."""

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, ConsoleMessage, Page, Route, expect, sync_playwright

from triptych_client import Client
from triptych_embedded.request import embedded_repository
from triptych_serving.gateway.options import GatewayOptions
from triptych_serving.observability.options import ObservabilityOptions
from triptych_serving.server import Server

from .support.in_process import Pace, options_of, serving
from .support.processes import PATIENCE_SECONDS, eventually
from .support.telemetry import Scrape

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update")
REJECTED = "Failed to load resource"  # reported for every response with an error status
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1200, "height": 900}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Server, Pace]]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        pace = Pace(monkeypatch)
        gateway = GatewayOptions("127.0.0.1", 0, playground=True)
        observability = ObservabilityOptions(metrics_port=0, metrics_host="127.0.0.1")
        options = replace(options_of(embedded_repository()), gateway=gateway, observability=observability)
        with serving(options) as server:
            yield server, pace


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS)) as browser:
        yield browser


expect.set_options(timeout=1_000 * PATIENCE_SECONDS)
LONG = (  # the first sentence is shown while the second one is decoded
    "I have a cat. The weather was so bad that the company had to cancel most of its flights, and many people had to wait at "
    "the airport until the next morning because all the hotels in the city were full."
)
NOTE_REVOKED = """() => {
  window.revoked = [];
  window.revoke ??= URL.revokeObjectURL.bind(URL);
  URL.revokeObjectURL = (url) => revoke(url, revoked.push(url));
}"""
SCREENS = {"desk": ("light", DESK), "phone": ("dark", PHONE)}


@pytest.fixture(scope="module", params=[pytest.param("desk", marks=pytest.mark.full), "phone"])
def shared(served: tuple[Server, Pace], browser: Browser, request: pytest.FixtureRequest) -> Iterator[tuple[Page, list[str]]]:
    """The page, which is loaded once, and a list for what it reports or asks others for."""
    scheme, size = SCREENS[request.param]
    url, faults = f"http://localhost:{served[0].http_port}/", []
    with browser.new_context(color_scheme=scheme, viewport=size, permissions=["clipboard-read", "clipboard-write"]) as context:
        page = context.new_page()
        page.on("console", lambda message: is_fault(message) and faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda sent: sent.url.startswith((url, "data:", "blob:")) or faults.append(sent.url))
        page.goto(url)
        expect(page.locator("#target .word").first).to_be_visible()
        yield page, faults


@pytest.fixture
def page(shared: tuple[Page, list[str]]) -> Iterator[Page]:
    """The page as the test before left it, but for its tab, its size and what is unfolded; at the end nothing was reported."""
    page, faults = shared
    size = page.viewport_size or PHONE
    faults.clear()
    choose(page, "Translate")
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = false")
    yield page
    assert not faults
    assert page.evaluate("document.documentElement.scrollWidth") <= (page.viewport_size or PHONE)["width"]
    page.set_viewport_size(size)


@pytest.fixture
def new_page(page: Page) -> Page:
    """The page as it opens, with its first translation."""
    page.unroute_all()
    page.reload()
    expect(page.locator("#target .word").first).to_be_visible()
    return page


def is_fault(message: ConsoleMessage) -> bool:
    return message.type in ("error", "warning") and REJECTED not in message.text


def choose(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name).click()


def test_translations_follow_the_typing(page: Page) -> None:
    page.fill("#source", "I have a cat.")
    expect(page.locator("#target")).to_have_text("Ich habe eine Katze.")
    expect(page.locator("#count")).to_have_text("13 characters")
    page.locator("#target .word", has_text="Katze").hover()
    expect(page.locator("#source-words .source").last).to_have_text("cat")
    page.locator("#alternatives summary").click()
    expect(page.locator("#alternatives li")).to_have_count(4)
    page.locator("#copy").click()
    expect(page.locator("#status")).to_have_text("The translation was copied.")
    assert page.evaluate("navigator.clipboard.readText()") == "Ich habe eine Katze."
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {configurable: true})")  # as over HTTP from another machine
    page.locator("#copy").click()
    expect(page.locator("#status")).to_contain_text("press Ctrl+C")
    assert page.evaluate("getSelection().toString().trim()") == "Ich habe eine Katze."
    page.evaluate("delete navigator.clipboard")
    expect(page.locator("#translate-time")).not_to_be_empty()
    page.fill("#source", "")
    for name in ("#target", "#translate-time"):
        expect(page.locator(name)).to_be_empty()


def test_texts_of_any_length_and_direction_are_seen_whole(page: Page) -> None:
    page.fill("#source", "I have a cat. " * 40)
    page.set_viewport_size(PHONE)
    assert page.evaluate("source.scrollHeight === source.clientHeight")
    for text, direction in (("لدي قطة. (1)", "rtl"), ("I have a cat.", "ltr")):
        page.fill("#source", text)
        for name in ("source", "source-words"):  # one lies over the other
            assert page.evaluate(f"getComputedStyle(document.getElementById('{name}')).direction") == direction


def test_translations_stream_and_further_typing_cancels_them(page: Page, served: tuple[Server, Pace]) -> None:
    server, pace = served
    pace.slow.set()
    try:
        page.fill("#source", LONG)
        expect(page.locator("#target.busy[aria-busy=true]")).to_have_text(re.compile(r"\w"))  # while it is decoded
        eventually(lambda: bool(running(server)))  # a row may have ended just now, and the next one not begun
        page.fill("#source", "")
        eventually(lambda: server.calls.count == 0)
        eventually(lambda: not running(server))
    finally:
        pace.slow.clear()
    expect(page.locator("#target")).to_have_text("")
    expect(page.locator("#target.busy, [aria-busy=true]")).to_have_count(0)


def test_a_tab_shows_its_own_command_alone(page: Page, served: tuple[Server, Pace]) -> None:
    server, pace = served
    pace.slow.set()
    try:
        page.fill("#source", LONG)
        expect(page.locator("#target.busy")).to_have_text(re.compile(r"\w"))
        choose(page, "Fill in")
    finally:
        pace.slow.clear()
    expect(page.locator("#fill-result .result")).to_have_count(8)
    eventually(lambda: server.calls.count == 0)
    page.locator("#request summary").click()
    expect(page.locator("#request-code")).to_contain_text("FillMask")


def running(server: Server) -> Mapping[Any, float]:
    """The models with rows, by the metrics."""
    return Scrape(f"127.0.0.1:{server.observability.port}").series("num_requests_running")


def test_errors_are_shown(page: Page) -> None:
    page.fill("#source", "word " * 2_000)
    expect(page.locator("#status.error")).to_contain_text("contents[0]")
    expect(page.locator("#target")).to_be_empty()  # not the translation of an earlier text
    page.fill("#source", "I have a cat.")
    expect(page.locator("#target")).to_have_text("Ich habe eine Katze.")
    expect(page.locator("#status")).to_have_text("")
    page.route("**/TranslateStream", lambda route: route.abort())
    page.fill("#source", "I have a dog.")
    expect(page.locator("#status.error")).to_have_text("The server does not answer. Is it still running?")
    page.unroute_all()


def test_a_generation_can_be_stopped_and_follows_its_options(page: Page, served: tuple[Server, Pace]) -> None:
    server, pace = served
    choose(page, "Generate")
    page.fill("#max-tokens", "400")  # takes eight seconds, in which even a busy machine finds the button
    pace.slow.set()
    try:
        page.get_by_role("button", name="Generate").click()
        expect(page.locator("#generated.busy")).to_have_text(re.compile(r"Once upon a time\W*\w"))
        page.get_by_role("button", name="Stop").click()
        eventually(lambda: server.calls.count == 0)
    finally:
        pace.slow.clear()
    expect(page.locator("#generated.busy")).to_have_count(0)
    page.fill("#prompt", "A man is")
    page.fill("#temperature", "0")
    page.fill("#max-tokens", "12")
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#generate-time")).to_contain_text("on the server")
    with Client(f"127.0.0.1:{server.port}") as client:
        expected = client.generate("A man is", sampling_topk=1, max_tokens=12).text
    assert page.locator("#generated").text_content() == f"A man is{expected}"
    for field, value, problem in (("#max-tokens", "0", "max_tokens"), ("#temperature", "-1", "sampling_temperature")):
        page.fill(field, value)
        page.get_by_role("button", name="Generate").click()
        expect(page.locator("#status.error")).to_contain_text(problem)
        expect(page.locator("#generated")).to_be_empty()  # not the prompt, which would be taken for the result
        page.fill(field, "1")


def test_documents_are_translated(page: Page, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n\nI have a cat.\n")
    page.evaluate(NOTE_REVOKED)
    page.get_by_label("File", exact=True).check()
    page.set_input_files("#file", tmp_path / "notes.md")
    with page.expect_download() as download:
        page.get_by_role("link", name="notes_de.md").click()
    assert "Ich habe eine Katze." in download.value.path().read_text()
    expect(page.locator("#request")).to_be_hidden()  # it is about the text
    link = page.get_by_role("link", name="notes_de.md").get_attribute("href")
    name = "x" * 150
    (tmp_path / f"{name}.md").write_text("I have a cat.\n")
    page.set_input_files("#file", tmp_path / f"{name}.md")
    expect(page.get_by_role("link", name=f"{name}_de.md")).to_be_visible()
    assert page.evaluate("revoked") == [link]
    assert page.evaluate("document.documentElement.scrollWidth") <= (page.viewport_size or PHONE)["width"]
    (tmp_path / "slow.md").write_text("I have a dog.\n")
    held: list[Route] = []
    page.route("**/translate_file", lambda route: route.fallback() if held else held.append(route))
    with page.expect_request("**/translate_file"):
        page.set_input_files("#file", tmp_path / "slow.md")
    page.set_input_files("#file", tmp_path / "notes.md")
    expect(page.get_by_role("link", name="notes_de.md")).to_be_visible()
    with page.expect_event("requestfinished", lambda request: request.url.endswith("/translate_file")):
        held[0].fulfill(status=500, json={"error": "late"})
    page.evaluate("new Promise((done) => setTimeout(done))")  # the page has read the response
    expect(page.locator("#status")).to_have_text("")
    expect(page.get_by_role("link", name="notes_de.md")).to_be_visible()  # that of the file that was chosen last
    page.unroute_all()
    page.locator("[name=input][value=text]").check()


def test_the_page_can_be_left_and_linked(page: Page) -> None:
    page.get_by_label("File", exact=True).check()
    page.goto("about:blank")
    page.go_back()
    expect(page.locator("#target .word").first).to_be_visible()
    expect(page.locator("[name=input][value=text]")).to_be_checked()  # as the part that is shown
    page.evaluate("location.hash = 'embed'")  # a link, or a bookmark
    expect(page.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")


def test_words_are_hidden_and_filled_in(page: Page) -> None:
    choose(page, "Fill in")
    expect(page.locator("#fill-result .result")).to_have_count(8)
    with page.expect_response("**/FillMask"):
        page.locator("#fill-words button", has_text="war").click()
    expect(page.locator("#fill-words [aria-pressed=true]")).to_have_text("[MASK]")
    expect(page.locator("#fill-result .result button").first).not_to_have_text("19th")  # the word that was hidden before
    name = page.locator("#fill-result .result button").first.text_content()
    page.locator("#fill-result .result button").first.click()
    assert name in page.input_value("#fill-text")


def test_pictures_are_classified(page: Page, tmp_path: Path) -> None:
    Image.new("RGB", (64, 48), "navy").save(tmp_path / "blue.png")
    choose(page, "Classify")
    page.set_input_files("#image", tmp_path / "blue.png")
    expect(page.locator("#classify-result .result")).to_have_count(5)
    expect(page.locator("#classify-note")).to_contain_text("10 kinds of things: airplane")
    page.evaluate(NOTE_REVOKED)
    first = page.locator("#picture").get_attribute("src")
    (tmp_path / "no.png").write_bytes(b"no picture")
    page.set_input_files("#image", tmp_path / "no.png")
    expect(page.locator("#status.error")).to_contain_text("images[0]")
    assert page.evaluate("revoked") == [first]


def test_attention_is_shown(page: Page, tmp_path: Path) -> None:
    page.fill("#source", "The weather is nice today.")
    page.locator("#attention summary").click()
    expect(page.locator(".attention-columns span").first).to_have_text("The")
    page.fill("#source", "The weather is nice today. Where did you leave the keys of my new car?")
    expect(page.locator(".attention-columns span", has_text="weather")).to_be_visible()
    page.wait_for_function(
        "[...document.querySelectorAll('.attention-rows span')].map((one) => one.textContent).join('').replace('</s>', '')"
        " === document.getElementById('target').textContent.replaceAll(/\\s/g, '')"
    )
    page.get_by_role("button", name="Lines").click()
    page.fill("#source", "The old bridge was destroyed by a flood.")
    page.locator(".attention-lines text", has_text="bridge").focus()  # the chosen view stays
    expect(page.locator(".attention-lines line:not(.hidden-line)").first).to_be_attached()
    page.get_by_role("button", name="All heads").click()
    page.get_by_role("button", name="Layer 1, head 2").click()
    expect(page.get_by_label("Heads")).to_have_value("1")
    page.fill("#source", "word " * 2_000)
    expect(page.locator("#attention-views")).to_contain_text("text: 10,000 characters are too long")
    Image.new("RGB", (64, 48), "navy").save(tmp_path / "blue.png")
    choose(page, "Classify")
    page.set_input_files("#image", tmp_path / "blue.png")
    expect(page.locator(".attention-image canvas")).to_be_visible()


def test_sentences_are_compared(page: Page) -> None:
    choose(page, "Compare")
    page.fill("#sentences", "A cat.\nA dog.\nA cat.")
    expect(page.locator("#embed-result tr")).to_have_count(4)
    cells = page.locator("#embed-result tr").nth(1).locator("td").all_text_contents()
    assert (cells[0], cells[2]) == ("1.00", "1.00")
    page.fill("#sentences", "word " * 2_000)
    expect(page.locator("#status.error")).to_contain_text("contents[0]")
    expect(page.locator("#embed-result")).to_be_empty()
    page.fill("#sentences", "The parliament approved the budget.\n" * 40)
    sentence = page.locator("#embed-result th[scope=row]").last
    expect(sentence).to_have_text("40. The parliament approved the budget.")
    assert sentence.evaluate("cell => cell.clientWidth") >= 140  # not one letter, beside 40 columns


def test_the_keyboard_is_enough(page: Page) -> None:
    page.fill("#source", "I have a cat.")
    page.get_by_role("tab", name="Translate").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Generate")).to_be_focused()
    expect(page.locator("#generate")).to_be_visible()
    with page.expect_request_finished(lambda request: request.url.endswith("/ScoreTranslations")):
        page.keyboard.press("ArrowLeft")
    page.locator("#target .word").nth(1).focus()
    expect(page.locator("#source-words .source").first).to_be_visible()


def test_the_request_is_shown_as_commands(page: Page, served: tuple[Server, Pace]) -> None:
    page.fill("#source", "They met again three years later.")
    page.locator("#request summary").click()
    code: Any = page.locator("#request-code")
    expect(code).to_contain_text("curl http://localhost")
    page.get_by_role("button", name="grpcurl").click()
    expect(code).to_contain_text(f"localhost:{served[0].port} triptych.v1.TranslationService/Translate")
    page.get_by_role("button", name="Python").click()
    expect(code).to_contain_text('three years later.", model="en-de", source_language="en", target_language="de")')


def test_masks_are_written_as_the_model_writes_them(new_page: Page) -> None:
    config = {"parameters": {"mask_token": {"string_value": "<mask>"}}}
    new_page.route("**/v2/models/bert-en/config", lambda route: route.fulfill(json=config))
    with new_page.expect_request("**/FillMask") as sent:
        choose(new_page, "Fill in")
    assert sent.value.post_data_json["contents"] == ["The war ended in the 19th <mask>."]
    expect(new_page.locator("#fill-words [aria-pressed=true]")).to_have_text("<mask>")


def test_a_key_is_asked_for_and_can_be_changed(page: Page) -> None:
    def check(route: Route) -> None:
        is_known = route.request.headers.get("authorization") == "Bearer known"
        error = {"code": "unauthenticated", "message": "unknown API key"}
        route.fallback() if is_known else route.fulfill(status=401, json=error)

    page.route("**/triptych.v1.*/*", check)
    page.reload()
    expect(page.locator("#status.error")).to_contain_text("needs an API key")
    for key in ("wrong", "schlüssel"):  # a header cannot carry the second one
        page.fill("#key", key)
        page.keyboard.press("Enter")
        expect(page.locator("#status.error")).to_have_text("unknown API key")
    page.fill("#key", " known ")
    with page.expect_event("requestfinished", lambda request: request.url.endswith("/TranslateStream")):
        page.locator(".key").evaluate("form => { form.requestSubmit(); form.requestSubmit(); }")  # Enter, twice
    expect(page.locator("#target .word").first).to_be_visible()
    expect(page.get_by_role("tab", name="Translate")).to_have_count(1)
    expect(page.locator("#key")).to_be_visible()  # for when it expires


class BreakOff(StreamRequestHandler):
    def handle(self) -> None:
        self.request.recv(65_536)
        self.wfile.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n")


def test_a_broken_connection_is_named(page: Page) -> None:
    with ThreadingTCPServer(("127.0.0.1", 0), BreakOff) as server:
        server.daemon_threads = True  # a browser may open connections that it does not use
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        page.route("**/TranslateStream", lambda route: route.continue_(url=url))
        page.fill("#source", "I have a bird.")
        expect(page.locator("#status.error")).to_have_text("the connection was closed")
        server.shutdown()
    page.unroute_all()


def test_models_without_languages_take_any(page: Page) -> None:
    model = {"name": "t5", "task": "translation", "state": "MODEL_STATE_READY", "defaultVersion": "1"}
    languages = {"services": ["triptych.v1.TranslationService"], "sourceLanguageCodes": ["und"], "targetLanguageCodes": ["und"]}
    page.route("**/ListModels", lambda route: route.fulfill(json={"models": [{**model, **languages}]}))
    page.reload()
    expect(page.locator("#source-language")).to_have_text("any language")
    page.unroute_all()
    page.reload()
    expect(page.locator("#target .word").first).to_be_visible()

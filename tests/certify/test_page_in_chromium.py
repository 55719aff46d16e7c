"""The page in a real browser. Needs Debian's chromium and chromium-driver; it downloads nothing."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.certify.examples import CLASSES
from tests.certify.serving import Visitor, example_image, served
from tllib_ancon.certifying.session import Comparison, Session
from tllib_ancon.data.answers import ANOTHER, CANNOT_TELL
from tllib_ancon.errors import UserError

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.remote.webdriver import WebDriver  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

PHONE, DESK = (360, 740), (1280, 900)
CONTRAST = """
const luminance = (color) => {
  const parts = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
const background = (element) => {
  const color = getComputedStyle(element).backgroundColor;
  return color !== "rgba(0, 0, 0, 0)" || !element.parentElement ? color : background(element.parentElement);
};
return [...document.querySelectorAll("h1, h2, p, span, kbd, li, button")]
  .filter((element) => element.offsetParent && element.textContent.trim() && !element.closest(":disabled"))
  .map((element) => {
    const pair = [getComputedStyle(element).color, background(element)].map(luminance).sort((a, b) => b - a);
    return [(pair[0] + 0.05) / (pair[1] + 0.05), element.outerHTML];
  });
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no Chromium: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    profile = tmp_path_factory.mktemp("chromium")
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.fixture
def page(session: Session, browser: WebDriver) -> Iterator[Visitor]:
    with served(session) as visitor:
        browser.set_window_size(*DESK)
        open_page(browser, visitor)
        yield visitor


def open_page(browser: WebDriver, page: Visitor) -> None:
    browser.get(page.address)
    until(browser, lambda: browser.find_element(By.ID, "progress").text)


def until(browser: WebDriver, condition: Callable[[], object]) -> None:
    WebDriverWait(browser, 20).until(lambda _: condition())


def text(browser: WebDriver, name: str) -> str:
    return browser.find_element(By.ID, name).text


def options(browser: WebDriver) -> list[str]:
    return [button.text for button in browser.find_elements(By.CSS_SELECTOR, "#options button span")]


def press(browser: WebDriver, key: str) -> None:
    """Press a key and wait until the page has shown what came of it."""
    before = text(browser, "progress")
    browser.find_element(By.TAG_NAME, "body").send_keys(key)
    until(browser, lambda: text(browser, "progress") != before)


def image_is_shown(browser: WebDriver, number: int) -> bool:
    script = "const image = document.getElementById('image'); return [image.src, image.complete, image.naturalWidth]"
    address, complete, width = browser.execute_script(script)
    return address.endswith(f"/image/{number}") and complete and width > 0


def errors(browser: WebDriver) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def test_keys_answer_and_the_next_image_comes(page: Visitor, browser: WebDriver, session: Session) -> None:
    errors(browser)
    expected = []
    for number, key in enumerate("1234"):
        until(browser, lambda shown=number: image_is_shown(browser, shown))
        classes = session.asked(number).options
        assert options(browser) == [*(CLASSES[label] for label in classes), "Another class", "Cannot tell"]
        expected.append([*classes, ANOTHER, CANNOT_TELL][int(key) - 1])
        press(browser, key)
    assert session.answers == expected
    assert text(browser, "progress") == "4 labels so far, 60 at most"
    assert text(browser, "status") == "Saved “Cannot tell”."
    assert errors(browser) == []


def test_clicks_answer_undo_brings_the_image_back_and_no_other_window_answers_twice(
    page: Visitor, browser: WebDriver, session: Session
) -> None:
    assert not browser.find_element(By.ID, "undo").is_enabled()
    browser.find_elements(By.CSS_SELECTOR, "#options button")[1].click()
    until(browser, lambda: image_is_shown(browser, 1))
    assert session.answers == [session.asked(0).options[1]]
    assert text(browser, "last") == f"“{CLASSES[session.asked(0).options[1]]}”"
    browser.find_element(By.ID, "undo").click()
    until(browser, lambda: image_is_shown(browser, 0))
    assert session.answers == []
    press(browser, "3")
    press(browser, "u")
    assert session.answers == []
    session.answer(ANOTHER)  # in another window
    press(browser, "1")
    assert text(browser, "status") == "this was answered in another window"
    assert text(browser, "progress") == "1 label so far, 60 at most"
    assert session.answers == [ANOTHER]


def test_a_reload_and_a_restart_go_on(session: Session, browser: WebDriver, tmp_path: Path) -> None:
    with served(session) as first:
        open_page(browser, first)
        press(browser, "1")
        browser.refresh()
        until(browser, lambda: image_is_shown(browser, 1))
        assert text(browser, "progress") == "1 label so far, 60 at most"
    again = Session(session.comparison, log=tmp_path / "answers.jsonl")
    with served(again) as second:
        open_page(browser, second)
        until(browser, lambda: image_is_shown(browser, 1))
        press(browser, "2")
    assert again.answers == [session.asked(0).options[0], session.asked(1).options[1]]


def test_it_asks_until_it_is_decided_and_says_what_was_found(
    page: Visitor, browser: WebDriver, session: Session
) -> None:
    while (question := session.question) is not None:
        adapted = int(session.comparison.adapted[question.position])
        press(browser, str(1 + question.options.index(adapted)))
    until(browser, lambda: text(browser, "title") == "Decided")
    assert "The adapted model is better\ncertified better: the adapted model's accuracy" in text(browser, "result")
    assert browser.switch_to.active_element.get_attribute("id") == "result"
    assert not browser.find_element(By.ID, "asking").is_displayed()
    answered = len(session.answers)
    browser.find_element(By.TAG_NAME, "body").send_keys("1u")
    assert not browser.find_element(By.ID, "undo").is_enabled()
    assert len(session.answers) == answered


@pytest.mark.parametrize("here", [True, False])
def test_finish_ends_the_command_and_what_was_saved_is_kept(session: Session, browser: WebDriver, here: bool) -> None:
    def ended() -> bool:
        try:
            return not page.state()
        except OSError:
            return True

    with served(session) as page:
        open_page(browser, page)
        finish = browser.find_element(By.ID, "finish")
        assert finish.text == "Stop for now"
        finish.click() if here else page.post("finish", {})
        until(browser, ended)
        browser.find_element(By.TAG_NAME, "body").send_keys("1")
        words = "every answer is saved" if here else "The server does not answer. What was saved is kept"
        until(browser, lambda: words in text(browser, "status"))
        assert finish.is_enabled() != here
    assert session.answers == []


def test_names_of_classes_are_text(browser: WebDriver) -> None:
    owned = "document.title='owned'"
    hostile = [f"<img src=x onerror={owned}>", f"</script><script>{owned}</script>", "“ & 'é"]
    session = Session(Comparison(np.zeros(30, dtype=int), np.arange(30) % 2 + 1, [str(i) for i in range(30)], hostile))
    with served(session) as page:
        open_page(browser, page)
        for number in range(3):
            until(browser, lambda shown=number: image_is_shown(browser, shown))
            assert set(options(browser)[:2]) == {hostile[label] for label in session.asked(number).options}
            press(browser, "12"[number % 2])
            assert text(browser, "last") == f"“{hostile[session.answers[-1]]}”"  # type: ignore[index]
        assert browser.title == "Which class is this?"
        assert len(browser.find_elements(By.TAG_NAME, "img")) == 1


def test_an_image_that_cannot_be_read_is_said_and_the_next_one_shows(session: Session, browser: WebDriver) -> None:
    first = session.asked(0).position

    def read(position: int):  # type: ignore[no-untyped-def]
        if position == first:
            raise UserError("image a.jpg: cannot be decoded")
        return example_image(position)

    with served(session, read) as page:
        open_page(browser, page)
        until(browser, lambda: text(browser, "unreadable") == "This image cannot be shown. Answer “Cannot tell”.")
        press(browser, "4")
        until(browser, lambda: image_is_shown(browser, 1))
        assert not browser.find_element(By.ID, "unreadable").is_displayed()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_the_keyboard_reaches_everything_and_parts_have_names(
    page: Visitor, browser: WebDriver, session: Session, scheme: str
) -> None:
    browser.execute_cdp_cmd(  # type: ignore[attr-defined]
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    press(browser, "1")
    ratios = browser.execute_script(CONTRAST)
    assert len(ratios) > 9
    assert [html for ratio, html in ratios if ratio < 4.5] == []
    reached = []
    for _ in range(6):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        assert browser.execute_script("return getComputedStyle(arguments[0]).outlineStyle", active) == "solid"
        reached.append(active.text)
    assert [words.splitlines()[0] for words in reached] == ["1", "2", "3", "4", "U", "Stop for now"]
    browser.find_elements(By.CSS_SELECTOR, "#options button")[0].send_keys(Keys.ENTER)
    until(browser, lambda: len(session.answers) == 2)
    status, image, group = (browser.find_element(By.ID, name) for name in ("status", "image", "options"))
    assert (status.get_attribute("role"), image.accessible_name) == ("status", "The image to classify")
    assert group.accessible_name == "Which class is this?"
    assert browser.find_element(By.TAG_NAME, "html").get_attribute("lang") == "en"


def test_it_fits_a_phone(page: Visitor, browser: WebDriver, tmp_path: Path) -> None:
    width, height = PHONE
    browser.execute_cdp_cmd(  # type: ignore[attr-defined]
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
    )
    try:
        browser.refresh()
        until(browser, lambda: image_is_shown(browser, 0))
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        for button in browser.find_elements(By.CSS_SELECTOR, "#options button"):
            place = button.rect
            assert place["height"] >= 44
            assert place["y"] + place["height"] <= height
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})  # type: ignore[attr-defined]

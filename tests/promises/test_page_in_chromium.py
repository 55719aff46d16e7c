"""The labelling page in a real browser (Debian's chromium and chromium-driver): from the first image to the verdict."""

import shutil

import pytest

from tests.support.certificates import comparison
from tests.support.serving import example_image, served
from tllib_ancon.certificate.answers import ANOTHER, CANNOT_TELL
from tllib_ancon.certificate.session import Session
from tllib_ancon.runtime.errors import UserError

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

OWNED = "document.title='owned'"
HOSTILE = [f"<img src=x onerror={OWNED}>", f"</script><script>{OWNED}</script>", "“ & 'é", "lamp"]
"""Names of classes."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium = shutil.which("chromium")
    driver = shutil.which("chromedriver")
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


def open_page(browser, page):
    browser.get(page.address)
    until(browser, lambda: browser.find_element(By.ID, "progress").text)


def until(browser, condition):
    """Wait for as long as the suite lets a test take: the machine may be busy."""
    WebDriverWait(browser, 600).until(lambda _: condition())


def text(browser, name):
    return browser.find_element(By.ID, name).text


def options(browser):
    return [button.text for button in browser.find_elements(By.CSS_SELECTOR, "#options button span")]


def press(browser, key):
    """Press a key and wait until the page has shown what came of it."""
    before = text(browser, "progress")
    browser.find_element(By.TAG_NAME, "body").send_keys(key)
    until(browser, lambda: text(browser, "progress") != before)


def image_is_shown(browser, number):
    script = "const image = document.getElementById('image'); return [image.src, image.complete, image.naturalWidth]"
    address, complete, width = browser.execute_script(script)
    return address.endswith(f"/image/{number}") and complete and width > 0


def errors(browser):
    entries = browser.get_log("browser")
    return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]


def test_a_session_from_the_first_image_to_the_verdict(browser, tmp_path):
    log = tmp_path / "answers.json"
    models = comparison(classes=HOSTILE)
    session = Session(models, log=log)
    unreadable = session.asked(0).position

    def read(position):
        if position == unreadable:
            raise UserError("image a.jpg: cannot be decoded")
        return example_image(position)

    with served(session, read) as page:
        open_page(browser, page)
        until(browser, lambda: text(browser, "unreadable") == "This image cannot be shown. Answer “Cannot tell”.")
        errors(browser)
        expected = []
        for number, key in enumerate("4123"):
            classes = session.asked(number).options
            if number:
                until(browser, lambda shown=number: image_is_shown(browser, shown))
            assert options(browser) == [*(HOSTILE[label] for label in classes), "Another class", "Cannot tell"]
            expected.append([*classes, ANOTHER, CANNOT_TELL][int(key) - 1])
            press(browser, key)
            assert text(browser, "last") == f"“{session.described(expected[-1])}”"
        assert session.answers == expected
        assert text(browser, "progress") == "4 labels so far, 60 at most"
        assert errors(browser) == []
        browser.find_elements(By.CSS_SELECTOR, "#options button")[1].click()
        until(browser, lambda: image_is_shown(browser, 5))
        browser.find_element(By.ID, "undo").click()
        until(browser, lambda: image_is_shown(browser, 4))
        press(browser, "u")
        assert session.answers == expected[:3]
        browser.find_element(By.ID, "finish").click()
        until(browser, lambda: "every answer is saved" in text(browser, "status"))

    session = Session(models, log=log)
    with served(session) as page:
        open_page(browser, page)
        while (question := session.question) is not None:
            label = int(models.adapted[question.position])
            press(browser, str(1 + question.options.index(label)))
        until(browser, lambda: text(browser, "title") == "Decided")
        assert "The adapted model is better\ncertified better: the adapted model's accuracy" in text(browser, "result")
        assert not browser.find_element(By.ID, "asking").is_displayed()
        assert not browser.find_element(By.ID, "undo").is_enabled()

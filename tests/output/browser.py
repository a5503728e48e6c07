"""A page in a real Chromium."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import ActionChains
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE = 30
"""Seconds, on a machine with other work."""


THEMES = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}
"""Theme → colour of the page."""


@contextmanager
def screen(browser: Any, width: int, theme: str = "light") -> Iterator[Callable[[int], None]]:
    """Within it the screen has a width and a theme; gives a function that changes the width."""

    def resize(to: int) -> None:
        size = {"width": to, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    feature = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    try:
        resize(width)
        yield resize
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


class Shown:
    """A page in the browser."""

    def __init__(self, browser: Any, path: Path | str, address: str = "") -> None:
        self.browser = browser
        for kind in ("browser", "performance"):
            browser.get_log(kind)  # what came before
        browser.get("about:blank")  # else another address of the same page would not load it
        browser.get((path if isinstance(path, str) else path.as_uri()) + address)
        self.until("return document.documentElement.dataset.complete")

    def ask(self, script: str, *given: object) -> Any:
        return self.browser.execute_script(script, *given)

    def until(self, script: str) -> Any:
        return WebDriverWait(self.browser, PATIENCE, 0.05).until(lambda _: self.ask(script))

    def again(self) -> None:
        """Load it again."""
        self.browser.refresh()
        self.until("return document.documentElement.dataset.complete")

    def fits(self, width: int, theme: str) -> None:
        """It is no wider than the screen, and has the colour of its theme."""
        assert self.ask("return document.documentElement.scrollWidth") <= width
        paper = self.ask("return getComputedStyle(document.body).backgroundColor")
        assert paper == THEMES[theme]

    def find(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        text = self.ask("return document.querySelector(arguments[0]).textContent", selector)
        return text.replace("\N{NO-BREAK SPACE}", " ")

    @property
    def picked(self) -> str:
        return self.ask("return document.documentElement.dataset.picked")

    def point(self, row: int, column: int, rows: int, columns: int) -> ActionChains:
        """The mouse moved to a cell of the map as it is shown."""
        area = self.find("#heat .nsewdrag")
        self.ask("arguments[0].scrollIntoView({block: 'center'})", area)
        x = (column + 0.5) / columns * area.size["width"] - area.size["width"] / 2
        y = (row + 0.5) / rows * area.size["height"] - area.size["height"] / 2
        return ActionChains(self.browser).move_to_element_with_offset(area, round(x), round(y))

    def double_click(self, selector: str) -> None:
        """In the middle of an element, whatever time the page takes for the first click: for a
        WebDriver those of a slow page are two single clicks."""
        area = self.find(selector)
        self.ask("arguments[0].scrollIntoView({block: 'center'})", area)
        box = self.ask("return arguments[0].getBoundingClientRect().toJSON()", area)
        middle = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for count in (1, 2):
            for kind in ("mousePressed", "mouseReleased"):
                event = {"type": kind, "button": "left", "clickCount": count, **middle}
                self.browser.execute_cdp_cmd("Input.dispatchMouseEvent", event)

    def is_quiet(self, server: str | None = None) -> None:
        """No word on the console, no request to the outside, no dialog.

        Args:
            server: where the page came from, if not from disk.
        """
        assert self.browser.get_log("browser") == []
        sent = [
            json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")
        ]
        urls = {
            each["params"]["request"]["url"]
            for each in sent
            if each["method"] == "Network.requestWillBeSent"
        }
        inside = ("data:", "chrome", "file:" if server is None else server)
        assert not {url for url in urls if not url.startswith(inside)}
        assert server or len([url for url in urls if url.startswith("file:")]) == 1

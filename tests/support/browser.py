"""A headless Chromium."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def chromium(folder: Path, *more: str) -> Iterator[webdriver.Chrome]:
    """Debian's, with its profile in `folder` and `more` arguments. The content of its console must be read: `get_log("browser")`."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    # Root has no sandbox, and containers little of /dev/shm.
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder}",
        *more,
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver") or "chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


def resize(driver: webdriver.Chrome, width: int, height: int, *, dark: bool = False) -> None:
    """Have the page see a window of that size, in CSS pixels."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

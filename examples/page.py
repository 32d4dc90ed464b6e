"""Pictures of the page for README and docs, made by living through the demo; needs Chromium.

python examples/page.py docs/images
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    command = [sys.executable, "-m", "limen", "serve", "--demo", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(
                executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
                args=FLAGS,
            )
            page = chromium.new_page(viewport={"width": 1180, "height": 780})
            _live_through(page, found[0], folder)
            dark = chromium.new_page(
                viewport={"width": 390, "height": 780}, color_scheme="dark", device_scale_factor=1.5
            )
            dark.goto(found[0])
            dark.wait_for_selector(".group img")
            dark.screenshot(path=folder / "serve-phone.png")
            chromium.close()
    finally:
        server.terminate()
        server.wait()


def _live_through(page: Page, address: str, folder: Path) -> None:
    """Wait for enough sevens, name them, and see them learnt."""
    page.goto(address)
    page.locator(".group").first.locator(".tile").nth(23).wait_for(timeout=180_000)
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("n")
    page.keyboard.type("seven")
    page.screenshot(path=folder / "serve-inbox.png")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Teach it").click()
    page.wait_for_selector('#job[data-state="done"]', timeout=120_000)
    page.set_viewport_size({"width": 1180, "height": 460})
    page.screenshot(path=folder / "serve-learnt.png")


if __name__ == "__main__":
    main()

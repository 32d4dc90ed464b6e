"""The picture of a report that the README shows; needs Chromium.

python examples/screenshot.py results/fashion-mnist-limen docs/images/report.png
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from limen.experiment.records import load_run
from limen.experiment.report import html_report

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "report.html"
        page_file.write_text(html_report([load_run(arguments.run)]))
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=FLAGS
        )
        page = chromium.new_page(viewport={"width": 1120, "height": 1075})
        page.goto(page_file.as_uri())
        page.screenshot(path=arguments.picture)
        chromium.close()


if __name__ == "__main__":
    main()

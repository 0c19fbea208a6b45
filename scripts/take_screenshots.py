"""Take the screenshots of docs/: the server's page, a report, and commands in a terminal.

    python scripts/take_screenshots.py RUN [--only terminal] [--browser /usr/bin/chromium]

RUN is that of `make demo`. Needs playwright and a Chromium, and rich for the terminal.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

IMAGES = Path(__file__).resolve().parent.parent / "docs/images"
SENTENCE = "The agreement on the European Economic Area was signed in August 1992."
PORT = 8765
WAIT = 60  # seconds until the server answers


def main() -> int:
    """Take the chosen screenshots, or all of them."""
    takers: dict[str, Callable[[Path, Path], None]] = {
        "terminal": terminal,
        "report": report,
        "server": server,
    }
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--only", nargs="+", choices=takers, default=list(takers))
    parser.add_argument("--browser", type=Path, default=Path("/usr/bin/chromium"))
    options = parser.parse_args()
    for name in options.only:
        takers[name](options.run, options.browser)
        print(name)
    return 0


def seq2seq(*arguments: object) -> str:
    """Run a subcommand; return what it prints."""
    command = [sys.executable, "-m", "seq2seq", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def terminal(run: Path, _browser: Path) -> None:
    """Draw a translation and an attention map as a terminal shows them."""
    from rich.console import Console

    outputs = {
        'seq2seq translate -m runs/demo "The red car is old."': seq2seq(
            "translate", "-m", run, "The red car is old."
        ),
        'seq2seq attention -m runs/demo --words "The small cat is black."': seq2seq(
            "attention", "-m", run, "--words", "The small cat is black."
        ),
    }
    console = Console(record=True, width=72, file=StringIO())
    for command, output in outputs.items():
        console.print(f"[bold]$ {command}[/bold]", highlight=False)
        console.print(output.rstrip(), markup=False, highlight=False)
    svg = console.export_svg(title="seq2seq", unique_id="terminal")
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg).replace("Fira Code", "ui-monospace")
    (IMAGES / "terminal.svg").write_text(svg, encoding="utf-8")


def report(run: Path, browser: Path) -> None:
    """Picture the first screen of a report."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        seq2seq("report", run, "-o", page)
        _picture(page.as_uri(), browser, "report", (1000, 1150))


def server(run: Path, browser: Path) -> None:
    """Picture the server's page with a translation, of which a word is chosen."""
    with _served(run):
        _picture(f"http://127.0.0.1:{PORT}/", browser, "server", (1000, 1150), SENTENCE)


@contextmanager
def _served(run: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "seq2seq", "serve", "-m", str(run), "--port", str(PORT)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + WAIT
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=1).close()
                break
            except OSError:
                if time.monotonic() > end or process.poll() is not None:
                    raise
                time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


def _picture(
    address: str, browser: Path, name: str, size: tuple[int, int], text: str | None = None
) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": size[0], "height": size[1]})
        page.goto(address)
        if text is not None:
            page.fill("#src", text)
            page.wait_for_selector("#tgt .word")
            page.wait_for_selector("#weights td")
            page.wait_for_load_state("networkidle")
            page.locator("#tgt .word").nth(5).hover()
        page.screenshot(path=IMAGES / f"{name}.png")
        chromium.close()


if __name__ == "__main__":
    sys.exit(main())

"""The report in README: ``python tests/picture.py`` draws docs/report.png anew, with an installed Chromium."""

import base64
import io
import tempfile
from pathlib import Path

from browser import Browser, program
from commands import evalbias
from PIL import Image

ROOT = Path(__file__).parent.parent
WIDTH, SCALE = 760, 1.5
AUDIT = "--map source=facts,output=reply --scores-field my_score --scale 1-5 --likelihood-lm embedded"


def draw(target):
    """Audit as README does, and write the report down to the end of its first plot."""
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        evalbias("audit", "--data", "docs/data/replies.csv", *AUDIT.split(), "--out", folder, cwd=ROOT)
        browser.send(
            "Emulation.setDeviceMetricsOverride", width=WIDTH, height=900, deviceScaleFactor=SCALE, mobile=False
        )
        browser.open(Path(folder) / "report.html")
        height = browser.evaluate("document.querySelector('figure').getBoundingClientRect().bottom + 16")
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 1}
        answer = browser.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
    Image.open(io.BytesIO(base64.b64decode(answer["data"]))).convert("RGB").quantize(256).save(target, optimize=True)


if __name__ == "__main__":
    if program() is None:
        raise SystemExit("No Chromium on the path: install one.")
    draw(ROOT / "docs" / "report.png")

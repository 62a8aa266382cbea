"""The report in the documentation: ``python tests/picture.py`` draws docs/report.png anew, with an installed Chromium.

The picture carries the verdict that it shows, so that a test notices when the report says something else.
"""

import base64
import io
import json
import tempfile
from pathlib import Path

from browser import Browser, program
from commands import evalbias
from PIL import Image, PngImagePlugin

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "report.png"
WIDTH, SCALE = 760, 1.5
AUDIT = "--map source=facts,output=reply --scores-field my_score --scale 1-5 --likelihood-lm embedded"


def audit(folder):
    """Audit as README does, and return the verdict."""
    evalbias("audit", "--data", "docs/data/replies.csv", *AUDIT.split(), "--out", folder, cwd=ROOT)
    return json.loads((Path(folder) / "result.json").read_text(encoding="utf-8"))["audit"]["verdict"]


def draw(target):
    """Write the report down to the end of its first plot."""
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        carried = PngImagePlugin.PngInfo()
        carried.add_itxt("verdict", audit(folder))
        browser.send(
            "Emulation.setDeviceMetricsOverride", width=WIDTH, height=900, deviceScaleFactor=SCALE, mobile=False
        )
        browser.open(Path(folder) / "report.html")
        height = browser.evaluate("document.querySelector('figure').getBoundingClientRect().bottom + 16")
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 1}
        answer = browser.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
    picture = Image.open(io.BytesIO(base64.b64decode(answer["data"]))).convert("RGB").quantize(256)
    picture.save(target, optimize=True, pnginfo=carried)


if __name__ == "__main__":
    if program() is None:
        raise SystemExit("No Chromium on the path: install one.")
    draw(PICTURE)

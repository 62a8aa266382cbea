"""The report in a headless Chromium: it loads in silence, by keyboard and on a narrow screen, and prints."""

import pytest
from browser import Browser, program
from report.test_page import HOSTILE, folder, measured  # noqa: F401

no_browser = pytest.mark.skipif(program() is None, reason="needs Chromium (apt-get install chromium)")
pytestmark = [pytest.mark.slow, no_browser]
SHOWN = "[...document.querySelectorAll('.tip')].filter(t => getComputedStyle(t).display != 'none').length"


@pytest.fixture
def browser(folder):  # noqa: F811
    with Browser() as opened:
        opened.open(folder / "report.html")
        yield opened


def test_the_page_is_silent_and_asks_for_nothing(browser):
    assert browser.messages == []
    assert browser.requests == []
    assert "document.title='ran'" in browser.evaluate("document.title")  # as text
    assert browser.evaluate("document.title") != "ran"
    assert browser.evaluate("document.images.length") == 0
    assert browser.evaluate("document.scripts.length") == 1  # that of the items


def test_without_its_policy_hostile_texts_do_not_run_either(folder, tmp_path):  # noqa: F811
    page = (folder / "report.html").read_text(encoding="utf-8")
    (tmp_path / "page.html").write_text(page.replace("Content-Security-Policy", "x"), encoding="utf-8")
    with Browser() as browser:
        browser.open(tmp_path / "page.html")
        assert browser.messages == []
        assert browser.evaluate("document.querySelectorAll('.tools').length") == 1
        assert browser.evaluate("document.title").lower().startswith(HOSTILE[:20])


@pytest.mark.parametrize("width", [320, 360, 700, 1400])
def test_nothing_is_wider_than_the_screen(folder, width):  # noqa: F811
    with Browser(width, 700) as browser:
        browser.open(folder / "report.html")
        assert browser.evaluate("document.documentElement.scrollWidth") == width
        drawn = "[...document.querySelectorAll('figure svg text')].filter(t => t.getClientRects().length)"
        smallest = browser.evaluate(f"Math.min(...{drawn}.map(t => t.getBoundingClientRect().height))")
        assert smallest > 9  # pixels: readable on a telephone


def test_terms_are_reached_by_keyboard_and_shown(browser):
    assert browser.evaluate(SHOWN) == 0
    for _ in range(12):
        browser.press("Tab")
        if browser.evaluate("document.activeElement.className") == "term":
            break
    assert browser.evaluate(SHOWN) == 1
    inside = "(() => { const r = document.activeElement.querySelector('.tip').getBoundingClientRect();"
    assert browser.evaluate(inside + " return r.top > 0 && r.bottom <= innerHeight && r.left >= 0; })()")
    browser.press("Enter")
    target = browser.evaluate("location.hash.slice(1)")
    assert target.startswith("term-")
    assert browser.evaluate(f"document.getElementById('{target}').getBoundingClientRect().top < innerHeight")


def test_a_term_is_shown_under_the_mouse(browser):
    term = "document.querySelector('main .term')"
    browser.evaluate(f"{term}.scrollIntoView()")
    box = f"(() => {{ const r = {term}.getClientRects()[0]; return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
    browser.hover(*browser.evaluate(box))
    assert browser.evaluate(SHOWN) == 1


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_plots_stand_out_in_both_themes(folder, dark):  # noqa: F811
    contrast = """(() => {
      const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(v => v / 255).map(
        v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
      const style = getComputedStyle(document.body), paper = light(style.backgroundColor);
      return ['ink', 'muted', 'accent', 'other'].map(name => {
        const one = document.createElement('i'); one.style.color = `var(--${name})`; document.body.append(one);
        const ink = light(getComputedStyle(one).color); one.remove();
        return (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05); }); })()"""
    with Browser(dark=dark) as browser:
        browser.open(folder / "report.html")
        assert min(browser.evaluate(contrast)) >= 4.5  # WCAG AA
        back = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (int(back[4:].split(",")[0]) < 128) == dark
        fill = "getComputedStyle(document.querySelector('figure .plot svg text')).fill"
        assert browser.evaluate(fill) != "rgb(0, 0, 0)"


LISTED = "[...document.querySelectorAll('.items li')].filter(one => one.getClientRects().length)"
NAMES = f"{LISTED}.map(one => one.querySelector('.id').textContent)"


def press(browser, words):
    """Press the next button whose text begins with the words."""
    for _ in range(9):
        if browser.evaluate("document.activeElement.textContent").startswith(words):
            break
        browser.press("Tab")
    else:
        raise AssertionError(f"Tab does not reach {words!r}.")
    browser.press("Enter")


def test_items_are_filtered_and_sorted_by_keyboard_and_all_are_printed(browser):
    first = browser.evaluate(NAMES)
    assert len(first) == 10
    browser.evaluate("document.querySelector('.tools input').focus()")
    browser.send("Input.insertText", text=f"{first[3].upper()} judge")  # in any case, every word
    texts = "[...document.querySelectorAll('.items li')].map(one => one.textContent.toLowerCase())"
    assert browser.evaluate(f"{LISTED}.length") == sum(first[3].split()[1] in text for text in browser.evaluate(texts))
    assert first[3] in browser.evaluate(NAMES)
    assert browser.evaluate("document.querySelector('.tools button:last-child').hidden")  # all that is found is shown
    browser.evaluate("document.querySelector('.tools input').select()")
    browser.send("Input.insertText", text=" ")
    assert browser.evaluate(NAMES) == first
    score = f"{LISTED}.map(one => JSON.parse(one.dataset.numbers).judge)"
    for descending, arrow in ((True, "by judge ↓"), (False, "by judge ↑")):
        press(browser, "by judge")
        assert browser.evaluate("document.querySelector('.tools [aria-pressed=true]').textContent") == arrow
        scores = browser.evaluate(score)
        assert scores == sorted(scores, reverse=descending)
    assert len(scores) == 10
    browser.send("Emulation.setEmulatedMedia", media="print")
    assert len(browser.evaluate(NAMES)) == 50
    browser.send("Emulation.setEmulatedMedia", media="screen")
    press(browser, "show all 50")
    scores = browser.evaluate(score)
    assert len(scores) == 50
    assert scores == sorted(scores)
    assert browser.messages == []


def test_without_scripts_the_first_items_are_shown_and_the_others_unfolded(folder, tmp_path):  # noqa: F811
    page = (folder / "report.html").read_text(encoding="utf-8")
    (tmp_path / "page.html").write_text(page.replace("<script>", "<template>"), encoding="utf-8")
    with Browser() as browser:
        browser.open(tmp_path / "page.html")
        assert browser.evaluate("document.querySelectorAll('.tools').length") == 0
        visible = LISTED.replace("getClientRects().length", "checkVisibility({contentVisibilityAuto: true})")
        assert browser.evaluate(f"{visible}.length") == 10
        browser.evaluate("document.querySelector('.look details').open = true")
        assert browser.evaluate(f"{visible}.length") == 50


def test_the_page_prints_with_every_setting(folder, tmp_path):  # noqa: F811
    with Browser(dark=True) as browser:
        browser.open(folder / "report.html")
        browser.pdf(tmp_path / "page.pdf")
        assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
        browser.send("Emulation.setEmulatedMedia", media="print")
        assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert browser.evaluate("document.querySelector('details dd').getBoundingClientRect().height") > 0

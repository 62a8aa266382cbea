"""The page of results: one section a benchmark, replaced when it runs again, by chapter and with contents."""

import re

from benchmarks.results import RESULTS, page, sections_of, write_section


def test_a_section_is_replaced_and_keeps_its_place(tmp_path):
    file = tmp_path / "RESULTS.md"
    for name, text in (("zepo one", "## One\n\nfirst"), ("zepo two", "## Two"), ("zepo one", "## One\n\nthird")):
        write_section(name, text, file)
    content = file.read_text()
    assert "first" not in content
    assert content.index("third") < content.index("## Two")
    assert content.count("<!-- zepo one -->") == 1
    assert content.count("Measured 20") == 2


def test_sections_stand_in_their_chapters_and_the_contents_link_to_them(tmp_path):
    file = tmp_path / "RESULTS.md"
    write_section("throughput of all", "## Fast: 2 to 3 times", file)
    write_section("likelihood_bias x", "## Table 1 (Ohi et al. 2024): x", file)
    write_section("mitigation", "## Compiling", file)
    content = file.read_text()
    assert [line for line in content.splitlines() if line.startswith(("- ", "  - "))] == [
        "- **Likelihood bias**",
        "  - [Compiling](#compiling)",
        "  - [Table 1 (Ohi et al. 2024): x](#table-1-ohi-et-al-2024-x)",
        "- **Speed**",
        "  - [Fast: 2 to 3 times](#fast-2-to-3-times)",
    ]
    assert re.findall(r"^## (.*)", content, flags=re.MULTILINE) == [
        "Compiling",
        "Table 1 (Ohi et al. 2024): x",
        "Fast: 2 to 3 times",
    ]


def test_the_committed_page_is_the_page_of_its_sections():
    text = RESULTS.read_text(encoding="utf-8")
    sections = sections_of(text)
    assert page(sections) == text
    assert all(section.startswith("\n## ") for section in sections.values())

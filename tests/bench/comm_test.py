"""`lockstep bench comm` from the command line: small cases, checked for plausible figures, not for speed."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as xml

LOCKSTEP = os.environ["LOCKSTEP_COMMAND"]
PYTHON = os.environ.get("LOCKSTEP_TEST_PYTHON", sys.executable)
# The variables of an outer launcher must not reach the ranks.
CLEAN = {k: v for k, v in os.environ.items() if not re.match(r"LOCKSTEP_|SLURM_|OMPI_|PMI|TORCHELASTIC_|(LOCAL_)?RANK$", k)}


class BenchComm(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bench_comm_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.environment = {**CLEAN, "TMPDIR": str(self.folder / "scratch")}
        (self.folder / "scratch").mkdir()

    def skipTest(self, reason):
        print(f"SKIPPED: {self.id().rpartition('.')[2]}: {reason}", flush=True)  # for tools/run_tests
        super().skipTest(reason)

    def bench(self, *arguments, code=0):
        """Runs the bench to its end; returns its output and its JSON."""
        file = self.folder / "out.json"
        done = subprocess.run([LOCKSTEP, "bench", "comm", "--json", str(file), *arguments], cwd=self.folder, text=True,
                              env=self.environment, capture_output=True, timeout=900)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(list((self.folder / "scratch").iterdir()), [], "the scratch folder is gone at the end")
        return done.stdout + done.stderr, json.loads(file.read_text()) if file.exists() else None

    def check_backend(self, figures):
        self.assertGreater(figures["p50_us"], 0)
        self.assertLessEqual(figures["p50_us"], figures["p99_us"])
        self.assertLessEqual(figures["p99_us"], figures["max_us"])
        self.assertGreater(figures["hot_p50_us"], 0)

    def test_a_quick_run_prints_a_table_and_writes_sane_json_and_svg(self):
        output, found = self.bench("-n", "2", "--sizes", "1K,64K", "--iterations", "5", "--svg", "chart.svg")
        self.assertEqual(found["ranks"], 2)
        self.assertEqual([(r["memory"], r["bytes"]) for r in found["rows"]],
                         [("registered", 1024), ("registered", 65536), ("ordinary", 1024), ("ordinary", 65536)])
        for row in found["rows"]:
            self.check_backend(row["backends"]["shm"])
            self.assertEqual(row["backends"]["shm"]["iterations"], 5)
            self.assertGreater(row["in_place_add"], 0)
            self.assertAlmostEqual(row["algbw"], row["bytes"] / row["backends"]["shm"]["p50_us"] * 1e6, delta=1)
            self.assertAlmostEqual(row["bound_us"], 4 * row["bytes"] / row["in_place_add"] * 1e6, delta=1e-3)
        # A leak checker stops each process for a moment at its end, which the launcher reports in a line of its own.
        own = [line for line in output.splitlines() if not line.startswith("lockstep | ")]
        self.assertLessEqual(max(map(len, own)), 100)
        self.assertTrue(xml.parse(self.folder / "chart.svg").getroot().tag.endswith("svg"))

    def test_every_op_and_type_runs_also_with_more_ranks_than_cores(self):
        _, found = self.bench("-n", "5", "--sizes", "8,20000", "--iterations", "2", "--ops", "all", "--dtypes", "all")
        self.assertEqual(len(found["rows"]), 10 * 9 * 2 * 2)

    def test_open_mpi_is_compared(self):
        if not pathlib.Path(LOCKSTEP).with_name("lockstep-bench-mpi").exists():
            output, _ = self.bench("--compare", "mpi", code=2)
            self.assertIn("built without MPI", output)
            return
        _, found = self.bench("-n", "3", "--sizes", "1K", "--iterations", "3", "--compare", "mpi", "--ops", "all",
                              "--dtypes", "float32,bfloat16", "--rounds", "1")
        for row in found["rows"]:
            if row["dtype"] == "float32" and row["op"] != "reduce_to_owners":
                self.check_backend(row["backends"]["mpi"])
            else:
                self.assertIsNone(row["backends"]["mpi"], "MPI has no bfloat16, and no reduction in place to shards")

    def test_gloo_is_compared(self):
        if subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True).returncode != 0:
            self.skipTest("torch is not installed for Python; tools/bootstrap test installs it")
        _, found = self.bench("-n", "2", "--sizes", "1K", "--iterations", "3", "--compare", "gloo", "--rounds", "1",
                              "--ops", "all", "--memory", "ordinary", "--python", PYTHON)
        self.assertIn("PyTorch", found["backends"]["gloo"])
        for row in found["rows"]:
            if row["op"].endswith("_owners"):
                self.assertIsNone(row["backends"]["gloo"], "Gloo has no calls with owners")
            else:
                self.check_backend(row["backends"]["gloo"])

    def test_a_python_without_torch_is_refused_with_the_next_step(self):
        output, _ = self.bench("--compare", "gloo", "--python", "/bin/false", code=2)
        self.assertIn("--python PATH or LOCKSTEP_PYTHON", output)

    def test_an_array_too_large_for_the_memory_limit_is_refused(self):
        output, _ = self.bench("-n", "2", "--sizes", "2G", code=2)
        self.assertIn("does not fit", output)

    def test_interrupted_it_ends_at_once_and_leaves_nothing(self):
        # A shell starts background processes with SIGINT ignored.
        bench = subprocess.Popen([LOCKSTEP, "bench", "comm", "-n", "2", "--seconds", "60s"], cwd=self.folder, text=True,
                                 env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        scratch = self.folder / "scratch"
        deadline = time.monotonic() + 60
        while not list(scratch.glob("*/lockstep-0/logs/*")):  # the ranks run
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        bench.send_signal(signal.SIGINT)
        output, _ = bench.communicate(timeout=60)
        self.assertEqual(bench.returncode, 130, output)
        self.assertEqual(list(scratch.iterdir()), [])


if __name__ == "__main__":
    unittest.main()

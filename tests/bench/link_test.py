"""`lockstep bench link` from the command line: on loopback, checked for plausible figures, not for speed."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as xml

LOCKSTEP = os.environ["LOCKSTEP_COMMAND"]
# The variables of an outer launcher must not reach the ranks.
CLEAN = {k: v for k, v in os.environ.items() if not re.match(r"LOCKSTEP_|SLURM_|OMPI_|PMI|TORCHELASTIC_|(LOCAL_)?RANK$", k)}


class BenchLink(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bench_link_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "scratch").mkdir()

    def run_command(self, *command, code=0):
        done = subprocess.run([LOCKSTEP, *command], cwd=self.folder, text=True, capture_output=True, timeout=500,
                              env={**CLEAN, "TMPDIR": str(self.folder / "scratch")})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def check_cluster(self, num_ranks):
        cluster = json.loads((self.folder / "cluster.json").read_text())
        self.assertEqual([host["ranks"] for host in cluster["hosts"]], [list(range(num_ranks))])
        self.assertTrue(cluster["hosts"][0]["numa_nodes"][0])
        pairs = [(a, b) for a in range(num_ranks) for b in range(a + 1, num_ranks)]
        self.assertEqual([tuple(link["ranks"]) for link in cluster["links"]], pairs)
        for link in cluster["links"]:
            measured = link["measured"]
            for key in ("latency_us", "bandwidth", "back_bandwidth", "striped_bandwidth"):
                self.assertGreater(measured[key], 0, key)
            self.assertGreaterEqual(measured["retransmits"], 0)
            self.assertIn(link["class"], ("ethernet", "infiniband", "nvlink"))

    def test_three_ranks_of_this_machine(self):
        output = self.run_command("bench", "link", "-n", "3", "--seconds", "10ms", "--json", "cluster.json", "--svg", "links.svg")
        self.check_cluster(3)
        self.assertRegex(output, r"(?m)^host 0: .* at 127\.0\.0\.1, ranks 0, 1, 2;")
        self.assertEqual(len(re.findall(r"(?m)^ +\d +\d  same ", output)), 3, output)
        self.assertIn("The slowest link, ranks ", output)
        self.assertLessEqual(max(map(len, output.splitlines())), 100)
        self.assertTrue(xml.parse(self.folder / "links.svg").getroot().tag.endswith("svg"))
        self.assertEqual(list((self.folder / "scratch").iterdir()), [], "the scratch folder is gone at the end")

    def test_the_ranks_of_a_launcher(self):
        output = self.run_command("run", "-n", "2", LOCKSTEP, "bench", "link", "--seconds", "10ms",
                                  "--json", "cluster.json")
        self.check_cluster(2)
        self.assertIn("The slowest link, ranks 0 and 1 ", output)

    def test_mistakes_are_named(self):
        self.assertIn("--secons", self.run_command("bench", "link", "--secons", "1s", code=2))
        self.assertIn("2", self.run_command("bench", "link", "-n", "1", code=2))
        self.assertIn("--json FILE", self.run_command("bench", "link", "--help"))


if __name__ == "__main__":
    unittest.main(verbosity=2)

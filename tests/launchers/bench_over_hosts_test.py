"""`lockstep bench` as the ranks of two `lockstep run`s, one on each emulated host.

Run inside `hosts 2`: this process is in the box, sees every host's processes, and reaches them with `on h0 …`.
"""

import json
import re
import subprocess
import unittest
import xml.etree.ElementTree as xml

from job_under_test import LOCKSTEP, JobTest

PORT = 29440


class BenchOverHosts(JobTest):
    def start_nodes(self, ranks, *bench, **variables):
        return [self.start("on", f"h{node}", LOCKSTEP, "run", "-n", str(ranks), "--nnodes", "2", "--node-rank", str(node),
                           "--rendezvous", f"h0:{PORT}", "--grace", "2s", "--timeout", "20s", LOCKSTEP, "bench", *bench,
                           **variables)
                for node in (1, 0)]

    def finish(self, jobs, code=0):
        """The outputs of node 1 and of node 0."""
        output = [job.communicate(timeout=120)[0] for job in jobs]
        self.assertEqual([job.returncode for job in jobs], [code] * 2, "\n----\n".join(output))
        return output

    def test_comm_times_the_ranks_of_both_hosts(self):
        output = self.finish(self.start_nodes(2, "comm", "--sizes", "1K,64K", "--iterations", "5", "--rounds", "2", "--json",
                                              "comm.json", "--svg", "comm.svg"))
        self.assertIn("4 ranks on 2 hosts", output[1])
        self.assertIn("hosts: h0 with ranks 0,1, h1 with ranks 2,3", output[1])
        self.assertNotIn("p50", output[0])  # rank 0 reports for all
        found = json.loads((self.folder / "comm.json").read_text())
        self.assertEqual((found["ranks"], found["rounds"], found["cores"]), (4, 2, None))
        self.assertEqual(found["hosts"], [{"name": "h0", "ranks": [0, 1]}, {"name": "h1", "ranks": [2, 3]}])
        self.assertEqual(list(found["backends"]), ["hierarchical"])
        self.assertEqual([(row["memory"], row["bytes"]) for row in found["rows"]],
                         [("registered", 1024), ("registered", 65536), ("ordinary", 1024), ("ordinary", 65536)])
        for row in found["rows"]:
            figures = row["backends"]["hierarchical"]
            self.assertEqual(figures["iterations"], 10)
            self.assertEqual(len(figures["p50_us_of_rounds"]), 2)
            self.assertTrue(0 < figures["p50_us"] <= figures["p99_us"] <= figures["max_us"], figures)
            self.assertEqual([row[key] for key in ("in_place_add", "bound_us", "bound_share")], [None] * 3)
        self.assertTrue(xml.parse(self.folder / "comm.svg").getroot().tag.endswith("svg"))

    def test_comm_refuses_what_it_cannot_do_as_a_rank(self):
        for options, words in ((("--compare", "gloo"), "benchmarks/hosts_benchmark"), (("-n", "3"), "omit -n"),
                               (("--sizes", "2G"), "does not fit")):
            output = self.finish(self.start_nodes(1, "comm", *options), code=2)
            self.assertIn(words, "".join(output))

    def connections(self):
        """The TCP connections between the ranks of the two hosts, with what the kernel states of each."""
        return subprocess.run(["on", "h0", "ss", "-HtniO", "state", "established", "dst", "10.77.0.11", "and", "not", "sport",
                               "=", f":{PORT}"], capture_output=True, text=True, check=True).stdout.splitlines()

    def connections_in_use(self):
        """Their number, once they have moved 10 MB; until then 0."""
        found = self.connections()
        moved = sum(map(int, re.findall(r"bytes_acked:(\d+)", "".join(found))))
        return len(found) if moved > 10e6 else 0

    def connections_while_comm_runs(self, **variables):
        jobs = self.start_nodes(1, "comm", "--sizes", "1M", "--seconds", "60s", **variables)
        count = self.wait_for(self.connections_in_use, "data between the ranks")
        self.kill_left_over()
        for job in jobs:
            job.communicate(timeout=60)
        # Ranks end a little later than what started them.
        self.wait_for(lambda: not self.connections(), "the end of the ranks")
        return count

    def test_link_measures_both_hosts_and_its_edited_file_decides_the_number_of_connections(self):
        output = self.finish(self.start_nodes(1, "link", "--seconds", "20ms", "--json", "cluster.json", "--svg", "links.svg"))
        self.assertRegex(output[1], r"host 1: h1 at 10\.77\.0\.11")
        self.assertIn("The slowest link, ranks 0 and 1 ", output[1])
        self.assertTrue(xml.parse(self.folder / "links.svg").getroot().tag.endswith("svg"))
        file = self.folder / "cluster.json"
        cluster = json.loads(file.read_text())
        self.assertEqual([(host["name"], host["ranks"]) for host in cluster["hosts"]], [("h0", [0]), ("h1", [1])])
        measured = cluster["links"][0]["measured"]
        counts = []
        for ratio in (1, 2):
            measured["striped_bandwidth"] = ratio * measured["bandwidth"]
            file.write_text(json.dumps(cluster))
            counts.append(self.connections_while_comm_runs(LOCKSTEP_LINKS=str(file)))
        self.assertEqual(counts[1] - counts[0], measured["stripes"] - 1, counts)


if __name__ == "__main__":
    unittest.main()

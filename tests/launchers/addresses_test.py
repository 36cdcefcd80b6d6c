"""Which addresses and ports ranks of two emulated hosts use, and what they say when the network does not work.

Run inside `hosts 2`: this process is in the box, sees every host's processes, and reaches them with `on h0 …`.
"""

import os
import pathlib
import re
import subprocess
import sys
import unittest

from job_under_test import LOCKSTEP, JobTest

PROGRAM = os.environ["LOCKSTEP_COLLECTIVES_OVER_HOSTS"]
# Turns off the devices' cutting of large packets (ETHTOOL_STSO, ETHTOOL_SGSO): a bridge passes uncut ones of any size.
WITHOUT_OFFLOAD = """
import array, fcntl, socket, struct
for command in (0x1F, 0x24):
    value = array.array("B", struct.pack("II", command, 0))
    request = struct.pack("16sP", b"eth0", value.buffer_info()[0])
    fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8946, request)
"""


def ip(host, *words):
    subprocess.run(["on", host, "ip", *words], check=True)


class Addresses(JobTest):
    def start_nodes(self, meeting, *options, what="digest", own=((), ())):
        """One rank on each host; `own` are the options of each node."""
        return [self.start("on", f"h{node}", LOCKSTEP, "run", "-n", "1", "--nnodes", "2", "--node-rank", str(node),
                           "--rendezvous", meeting[node], "--grace", "2s", "--run-dir", f"run{node}", "--timeout", "20s",
                           *options, *own[node], PROGRAM, what)
                for node in (1, 0)]

    def finish(self, jobs, code=0):
        output = "".join(job.communicate(timeout=120)[0] for job in jobs)
        self.assertEqual([job.returncode for job in jobs], [code] * 2, output)
        return output

    def logs(self):
        return "".join(log.read_text(errors="replace") for log in sorted(self.folder.glob("run*/logs/*.log")))

    def kill(self, jobs):
        for job in jobs:  # what it has started on its host ends with the test
            job.kill()
            job.stdout.close()
            job.wait()

    def add_addresses(self, prefix, hosts=(0, 1)):
        """Gives each host the IPv4 address that ends in its number, 10 or 11."""
        for host in hosts:
            words = ["addr", "add", f"{prefix}.{10 + host}/24", "dev", "eth0"]
            ip(f"h{host}", *words)
            self.addCleanup(ip, f"h{host}", "addr", "del", *words[2:])

    def rename(self, host, old, new):
        ip(host, "link", "set", old, "down")
        ip(host, "link", "set", old, "name", new)
        ip(host, "link", "set", new, "up")

    def test_ipv6(self):
        if not os.path.exists("/proc/sys/net/ipv6"):
            self.skipTest("this kernel has no IPv6")
        # The scope of a link-local address names an interface of the machine that uses it.
        self.rename("h1", "eth0", "net7")
        self.addCleanup(self.rename, "h1", "net7", "eth0")
        for host, interface, number in (("h0", "eth0", 10), ("h1", "net7", 11)):
            for prefix in ("fd77::", "fe80::"):
                ip(host, "-6", "addr", "add", f"{prefix}{number}/64", "dev", interface, "nodad")
        for meeting in (["[fd77::10]:29430"] * 2, ["[fe80::10%eth0]:29431", "[fe80::10%net7]:29431"]):
            output = self.finish(self.start_nodes(meeting))
            self.assertEqual(len(re.findall("uses tcp", self.logs())), 2, output)
            for node in (0, 1):
                os.rename(self.folder / f"run{node}", self.folder / f"{meeting[0]}-{node}")

    def test_the_interface_and_the_ports_can_be_chosen(self):
        self.add_addresses("10.78.0")
        jobs = self.start_nodes(["h0:29432"] * 2, "--interface", "10.78.0.0/24", "--ports", "40000-40009", what="forever")
        self.wait_for(lambda: len(re.findall("uses tcp", self.logs())) == 2, "two ranks that sum")
        sockets = subprocess.run(["on", "h1", "ss", "-Htn", "dst", "10.78.0.10"], stdout=subprocess.PIPE, text=True,
                                 check=True).stdout.splitlines()
        self.assertEqual(len(sockets), 2, sockets)  # for messages and for data
        for line in sockets:
            self.assertRegex(line, r"10\.78\.0\.11:\d+ +10\.78\.0\.10:4000\d")
        listening = subprocess.run(["on", "h0", "ss", "-Htln"], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertRegex(listening, r"10\.77\.0\.10:4000\d")  # the store of the ranks
        self.kill(jobs)

    def add_cards(self):
        """Connects both hosts by a second link: eth1, 10.80.0.10 and 10.80.0.11."""
        subprocess.run(["ip", "link", "add", "second0", "type", "veth", "peer", "name", "second1"], check=True)
        for host in (0, 1):
            pid = pathlib.Path(f"/media/h{host}").read_text().strip()
            subprocess.run(["ip", "link", "set", f"second{host}", "netns", pid, "name", "eth1"], check=True)
            ip(f"h{host}", "addr", "add", f"10.80.0.{10 + host}/24", "dev", "eth1")
            ip(f"h{host}", "link", "set", "eth1", "up")
        self.addCleanup(ip, "h0", "link", "del", "eth1")

    def test_several_interfaces_share_the_data(self):
        self.add_cards()
        jobs = self.start_nodes(["h0:29438"] * 2, "--interface", "eth0,eth1", "--stripes", "3", what="forever")
        self.wait_for(lambda: len(re.findall("uses tcp", self.logs())) == 2, "two ranks that sum")
        sockets = subprocess.run(["on", "h1", "ss", "-Htn", "state", "established"], stdout=subprocess.PIPE, text=True,
                                 check=True).stdout
        # Stripes 0 and 2 use eth0, as do messages; stripe 1 uses eth1.
        self.assertEqual(len(re.findall(r"10\.80\.0\.11:\d+ +10\.80\.0\.10:", sockets)), 1, sockets)
        self.assertGreaterEqual(len(re.findall(r"10\.77\.0\.11:\d+ +10\.77\.0\.10:", sockets)), 3, sockets)

        def bytes_of_second_card():
            lines = subprocess.run(["on", "h0", "cat", "/proc/net/dev"], stdout=subprocess.PIPE, text=True, check=True).stdout
            return int(re.search(r"eth1: *(\d+)", lines)[1])

        self.wait_for(lambda: bytes_of_second_card() > 5_000_000, "data through the second card")
        self.assertNotIn("lost rank", self.logs())
        self.kill(jobs)

    def test_an_address_that_the_other_host_cannot_use_is_named_with_the_remedy(self):
        output = self.finish(self.start_nodes(["h0:29433"] * 2, "--interface", "lo"), code=1)
        self.assertRegex(output, r"rank 0 has the loopback address 127\.0\.0\.1, which rank 1 on another host cannot reach: "
                                 "name an interface of the network with --interface")

    def test_a_pair_that_cannot_connect_is_named_with_both_addresses(self):
        self.add_addresses("10.78.0", [0])
        self.add_addresses("10.79.0", [1])
        jobs = self.start_nodes(["h0:29434"] * 2, own=(("--interface", "10.78.0.10"), ("--interface", "10.79.0.0/16")))
        output = self.finish(jobs, code=1)
        self.assertRegex(output, r"rank 1 at 10\.79\.0\.11 cannot connect to rank 0 at 10\.78\.0\.10:\d+ .*"
                                 "Network is unreachable")

    def test_a_network_that_drops_large_packets_is_named(self):
        for host in ("h0", "h1"):
            subprocess.run(["on", host, sys.executable, "-c", WITHOUT_OFFLOAD], check=True)
        jobs = self.start_nodes(["h0:29436"] * 2, "--heartbeat", "6s", what="forever")  # longer than a busy machine needs
        self.wait_for(lambda: len(re.findall("uses tcp", self.logs())) == 2, "two ranks that sum")
        subprocess.run(["ip", "link", "set", "h1", "mtu", "600"], check=True)  # the port of the bridge to h1
        self.addCleanup(subprocess.run, ["ip", "link", "set", "h1", "mtu", "1500"], check=True)
        self.wait_for(lambda: len(re.findall("lost rank", self.logs())) == 2, "two ranks that give up")
        self.kill(jobs)
        for rank in (0, 1):
            self.assertRegex(self.logs(), f"lost rank {rank} after .*messages arrive, but data do not: the network seems to "
                                          "drop large packets. Compare the MTU")

    def test_the_heartbeat_can_be_chosen(self):
        jobs = self.start_nodes(["h0:29437"] * 2, "--heartbeat", "1s", what="forever")
        self.wait_for(lambda: len(re.findall("uses tcp", self.logs())) == 2, "two ranks that sum")
        subprocess.run(["ip", "link", "set", "h1", "down"], check=True)
        self.addCleanup(subprocess.run, ["ip", "link", "set", "h1", "up"], check=True)
        self.wait_for(lambda: len(re.findall("lost rank", self.logs())) == 2, "two ranks that give up")
        self.kill(jobs)
        for seconds in re.findall(r"lost rank \d+ after ([\d.]+) s", self.logs()):
            self.assertLess(float(seconds), 2.8)  # less than the default of 3 s


if __name__ == "__main__":
    unittest.main(verbosity=2)

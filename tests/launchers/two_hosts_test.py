"""The same program on two emulated hosts, under every launcher; and the loss of one of them.

Run inside `hosts 2`: this process is in the box, sees every host's processes, and reaches them with `on h0 …`.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from job_under_test import LOCKSTEP, PRINT_WORLD, PYTHON, JobTest, expected_worlds, worlds

ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SLURM_CONF = """ClusterName=box
SlurmctldHost={head}(10.77.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/ctld
SlurmdSpoolDir=/var/tmp/slurmd
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile=/var/tmp/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
ReturnToService=2
MpiDefault=none
NodeName=h0 NodeAddr=10.77.0.10 CPUs=2 RealMemory=1000
NodeName=h1 NodeAddr=10.77.0.11 CPUs=2 RealMemory=1000
PartitionName=p Nodes=ALL Default=YES State=UP
"""


def start_slurm(test):
    """Starts SLURM on both hosts. Returns its daemons, and the variables that its commands need."""
    if not shutil.which("slurmctld", path=os.environ["PATH"] + ":/usr/sbin"):
        test.skipTest("SLURM is not installed; tools/bootstrap test installs it")
    if os.getuid() != 0 or pathlib.Path("/proc/self/uid_map").read_text().split()[2] != "4294967295":
        test.skipTest("SLURM's daemons need real root")
    conf = test.folder / "slurm.conf"
    (test.folder / "ctld").mkdir()
    conf.write_text(SLURM_CONF.format(head=os.uname().nodename, folder=test.folder))
    slurm = {"SLURM_CONF": str(conf), "PATH": test.environment["PATH"] + ":/usr/sbin"}
    daemons = [test.start("slurmctld", "-D", "-f", str(conf), **slurm)]
    daemons += [test.start("on", host, "slurmd", "-D", "-f", str(conf), **slurm) for host in ("h0", "h1")]
    idle = ["sinfo", "-h", "-o", "%T"]
    test.wait_for(lambda: subprocess.run(idle, env={**test.environment, **slurm}, capture_output=True,
                                         text=True).stdout.split() == ["idle"], "both SLURM nodes idle", limit=40)
    return daemons, slurm


def mpirun_over_hosts(test):
    """The beginning of a command of mpirun that reaches the hosts by `on`, and the variables that it needs."""
    if not shutil.which("mpirun"):
        test.skipTest("mpirun is not installed; tools/bootstrap test installs it")
    agent = test.folder / "agent"
    agent.write_text('#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nh=$1; shift\nexec on "$h" sh -c "$*"\n')
    agent.chmod(0o755)
    return ["mpirun", "--mca", "plm_rsh_agent", str(agent), "--mca", "oob_tcp_if_include", "10.77.0.0/24", "--bind-to",
            "none", "-x", "LOCKSTEP_RENDEZVOUS", "-x", "HOME", "-x", "LOCKSTEP_TEST_TOKEN"], ROOT


class TwoHosts(JobTest):
    def lockstep_on(self, node, *rest, port="29400"):
        return self.start("on", f"h{node}", LOCKSTEP, "run", "-n", "2", "--nnodes", "2", "--node-rank", str(node),
                          "--rendezvous", f"h0:{port}", "--grace", "2s", "--run-dir", f"run{node}", "--timeout", "20s",
                          *rest)

    def met(self):
        return worlds("".join(log.read_text() for log in self.folder.glob("run*/logs/*.log")))

    def launcher_of(self, node):
        """The launcher itself: `on` enters the host and starts it as a child."""
        for pid in self.processes():
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[0] == LOCKSTEP.encode() and b"--node-rank" in words:
                if words[words.index(b"--node-rank") + 1] == str(node).encode():
                    return pid
        self.fail(f"no launcher of node {node} is running")

    def top(self, node):
        text = subprocess.run(["on", f"h{node}", LOCKSTEP, "top", f"run{node}", "--json"], cwd=self.folder, timeout=60,
                              env=self.environment, stdout=subprocess.PIPE, text=True, check=False).stdout
        return json.loads(text)["ranks"] if text else []

    def test_top_shows_the_ranks_of_both_nodes_on_each_of_them(self):
        jobs = [self.lockstep_on(node, PRINT_WORLD, "steps", "5") for node in (1, 0)]
        for node in (0, 1):
            self.wait_for(lambda: [rank["bucket"] for rank in self.top(node)] == [4] * 4, f"all ranks on node {node}")
            ranks = self.top(node)
            self.assertEqual([rank["host"] for rank in ranks], ["h0", "h0", "h1", "h1"])
            self.assertEqual([rank["step"] for rank in ranks], [5] * 4)
            self.assertTrue(all(rank["seconds_in_step"] < 60 for rank in ranks), ranks)
        os.kill(self.workers()[2], signal.SIGKILL)  # on node 1
        output = [job.communicate(timeout=60)[0] for job in jobs]
        for text in output:
            self.assertIn("it was at: step 5, backward, bucket 4", text)
        self.assertEqual([rank["state"] for rank in self.top(0)], ["ended"] * 4)

    def test_doctor_checks_each_node_and_their_link(self):
        jobs = [self.start("on", f"h{node}", LOCKSTEP, "run", "-n", "1", "--nnodes", "2", "--node-rank", str(node),
                           "--rendezvous", "h0:29400", "--run-dir", f"run{node}", "--timeout", "20s", LOCKSTEP, "doctor",
                           "--quick", "-n", "1") for node in (1, 0)]
        output = [job.communicate(timeout=90)[0] for job in jobs]
        self.assertIn("h0, 1 rank", output[1])
        self.assertIn("h1, 1 rank", output[1])
        self.assertIn("reachable from node 0 and back", output[1])
        self.assertRegex(output[1], r"clock +[+-]0\.\d+ s against node 0")
        self.assertIn("equal in all that was compared", output[1])
        self.assertNotIn("LibTorch", output[0])  # node 0 reports for all

    def test_lockstep_run_on_two_nodes(self):
        jobs = [self.lockstep_on(node, PRINT_WORLD) for node in (1, 0)]
        output = "".join(job.communicate(timeout=60)[0] for job in jobs)
        self.assertEqual([job.returncode for job in jobs], [0, 0], output)
        self.assertEqual(worlds(output), expected_worlds(2, 2), output)
        self.assertIn("10.77.0.10:", output)  # the bound address is printed
        secret = self.folder / ".config/lockstep/secret"
        self.assertEqual(secret.stat().st_mode & 0o777, 0o600)

    def test_a_rank_that_fails_on_one_node_ends_both_and_is_named_on_both(self):
        jobs = [self.lockstep_on(node, PRINT_WORLD, "exit", "5", "3") for node in (0, 1)]
        outputs = [job.communicate(timeout=60)[0] for job in jobs]
        for job, output in zip(jobs, outputs):
            self.assertEqual(job.returncode, 5, "\n----\n".join(outputs))
            self.assertRegex(output, r"rank 3\b.*exit code 5")
        self.expect_nothing_left()

    def test_when_one_launcher_is_killed_no_process_is_left_on_either_node(self):
        for victim in (1, 0):
            jobs = [self.lockstep_on(node, PRINT_WORLD, "wait") for node in (0, 1)]
            self.wait_for(lambda: len(self.met()) == 4, "four ranks that have met")
            os.kill(self.launcher_of(victim), signal.SIGKILL)
            output = jobs[1 - victim].communicate(timeout=30)[0]
            self.assertEqual(jobs[1 - victim].returncode, 125, output)
            self.assertIn(f"node {victim}", output)
            self.expect_nothing_left()
            jobs[victim].communicate()
            shutil.rmtree(self.folder / "run0")
            shutil.rmtree(self.folder / "run1")

    def test_the_loss_of_a_host_with_unacknowledged_bytes_is_detected(self):
        # Keep-alive does not probe a connection with unacknowledged bytes: the kernel retransmits for 15 minutes.
        script = "[ $RANK = 0 ] && sleep 3 && exit 3; sleep 100"
        jobs = [self.lockstep_on(node, "sh", "-c", script, port="29407") for node in (1, 0)]
        self.wait_for(lambda: (self.folder / "run1/logs/rank-003.log").exists(), "the ranks")
        time.sleep(1)
        subprocess.run(["ip", "link", "set", "h1", "down"], check=True)
        self.addCleanup(subprocess.run, ["ip", "link", "set", "h1", "up"], check=True)
        output = jobs[1].communicate(timeout=90)[0]
        self.assertRegex(output, r"node 1|rank 0")
        self.assertNotEqual(jobs[1].returncode, 0)

    def test_failed_ranks_are_restarted_on_both_nodes(self):
        jobs = [self.lockstep_on(node, "--max-restarts", "2", PRINT_WORLD, "fail-once", "3") for node in (0, 1)]
        outputs = [job.communicate(timeout=60)[0] for job in jobs]
        for job, output in zip(jobs, outputs):
            self.assertEqual(job.returncode, 0, "\n----\n".join(outputs))
            self.assertIn("restart 1 of 2", output)
        self.expect_nothing_left()

    def test_a_node_with_another_secret_is_refused(self):
        (self.folder / "other").write_text("0" * 64 + "\n")
        (self.folder / "other").chmod(0o600)
        good = self.lockstep_on(0, PRINT_WORLD)
        bad = self.lockstep_on(1, "--secret-file", "other", PRINT_WORLD)
        output = bad.communicate(timeout=40)[0]
        self.assertNotEqual(bad.returncode, 0)
        self.assertIn("secret", output)
        good.send_signal(signal.SIGTERM)
        good.communicate(timeout=40)

    def test_a_missing_node_is_named(self):
        job = self.start("on", "h0", LOCKSTEP, "run", "-n", "2", "--nnodes", "2", "--node-rank", "0", "--rendezvous",
                         "h0:29401", "--timeout", "1s", PRINT_WORLD)
        output = job.communicate(timeout=30)[0]
        self.assertEqual(job.returncode, 125, output)
        self.assertIn("node 1", output)

    def test_torchrun_with_an_agent_on_each_host(self):
        if subprocess.run([PYTHON, "-c", "import torch.distributed.run"], capture_output=True).returncode != 0:
            self.skipTest("torch is not installed for Python; tools/bootstrap test installs it")
        agents = [self.start("on", f"h{node}", PYTHON, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank",
                             str(node), "--nproc-per-node", "2", "--master-addr", "h0", "--master-port", "29500",
                             "--no-python", PRINT_WORLD) for node in (0, 1)]
        output = "".join(agent.communicate(timeout=90)[0] for agent in agents)
        self.assertEqual(worlds(output), expected_worlds(2, 2), output)

    def test_mpirun_over_both_hosts(self):
        mpirun, variables = mpirun_over_hosts(self)
        output = self.run_job(*mpirun, "-host", "h0:2,h1:2", "-np", "4", PRINT_WORLD, LOCKSTEP_RENDEZVOUS="h0:29402",
                              **variables)
        self.assertEqual([w[:2] + w[6:] for w in worlds(output)], [w[:2] + w[6:] for w in expected_worlds(2, 2)], output)

    def test_srun_over_both_hosts(self):
        daemons, slurm = start_slurm(self)
        output = self.run_job("srun", "-N2", "-n4", PRINT_WORLD, **slurm)
        for daemon in daemons:
            daemon.terminate()
        self.assertEqual(worlds(output), expected_worlds(2, 2), output)


if __name__ == "__main__":
    unittest.main()

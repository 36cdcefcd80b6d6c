"""Unauthenticated connections to a running job: refused, and the job continues undisturbed."""

import os
import pathlib
import re
import signal
import socket
import struct
import unittest

from job_under_test import LOCKSTEP, PRINT_WORLD, JobTest


class Strangers(JobTest):
    def setUp(self):
        super().setUp()
        self.job = self.start(LOCKSTEP, "run", "-n", "2", PRINT_WORLD, "wait")
        rank = self.wait_for_workers(2)[0]
        store = re.search(rb"LOCKSTEP_STORE=([\d.]+):(\d+)", pathlib.Path(f"/proc/{rank}/environ").read_bytes())
        self.address = (store[1].decode(), int(store[2]))
        self.assertEqual(self.address[0], "127.0.0.1", "on one node nothing listens beyond loopback")

    def tearDown(self):
        self.assertEqual(len(self.workers()), 2, "the ranks must still run")
        self.job.send_signal(signal.SIGTERM)
        output = self.job.communicate(timeout=30)[0]
        self.assertEqual(self.job.returncode, 128 + signal.SIGTERM, output)
        self.expect_nothing_left()

    def connect(self):
        return socket.create_connection(self.address, timeout=60)

    def expect_closed(self, connection):
        connection.settimeout(60)  # the server's limit is 5 s
        try:
            while connection.recv(4096):
                pass
        except ConnectionError:
            pass

    def test_garbage_is_refused(self):
        for bytes_ in (os.urandom(100), b"GET / HTTP/1.1\r\n\r\n" * 5, b"\0" * 100):
            with self.connect() as connection:
                connection.sendall(bytes_)
                self.expect_closed(connection)

    def test_a_peer_without_the_secret_is_refused(self):
        with self.connect() as connection:
            connection.sendall(b"LKS1" + os.urandom(32))
            reply = connection.recv(64)
            self.assertEqual(len(reply), 64)
            connection.sendall(os.urandom(32))
            self.expect_closed(connection)

    def test_a_claim_of_four_gigabytes_is_refused(self):
        with self.connect() as connection:
            connection.sendall(struct.pack("<I", 2**32 - 1) * 40)
            self.expect_closed(connection)

    def test_a_silent_connection_is_closed(self):
        with self.connect() as connection:
            connection.sendall(b"L")
            self.expect_closed(connection)

    def test_two_thousand_connections_do_not_disturb_the_job(self):
        connections = []
        for _ in range(2000):
            try:
                connections.append(self.connect())
            except OSError:
                break
        self.assertGreater(len(connections), 500)
        for connection in connections:
            connection.close()


if __name__ == "__main__":
    unittest.main()

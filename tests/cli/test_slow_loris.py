#!/usr/bin/env python3
"""Ten thousand connections that never finish their request, and one that does: it is answered within 100 ms."""
import resource
import select
import socket
import time
import unittest

from serve_harness import ServeTest

WANTED = 10_000
LIMIT_SECONDS = 0.1


class SlowLoris(ServeTest):
    # They stay for the whole test, and the limit on connections is met.
    arguments = ("--header-time", "600", "--idle-time", "600")

    def ask(self):
        begun = time.monotonic()
        self.assertEqual(self.server.request("GET", "/healthz")[0], 200)
        return time.monotonic() - begun

    def test_others_are_answered(self):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        count = min(WANTED, most - 200)
        slow, slowest = [], 0.0
        for number in range(count):
            connection = self.server.socket()
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
            slow.append(connection)
            if number % 500 == 0:
                slowest = max(slowest, self.ask())
        print(f"{count} connections")
        for _ in range(200):
            for connection in slow[::100]:
                try:
                    connection.send(b"h")
                except OSError:
                    pass  # it has made room
            slowest = max(slowest, self.ask())
        print(f"slowest answer {slowest * 1000:.1f} ms")
        self.assertLess(slowest, LIMIT_SECONDS)
        with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as status:
            resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
        print(f"resident {resident / 1024:.0f} MiB")
        # Most are there still: nobody was thrown out without need.
        poll = select.poll()
        for connection in slow:
            poll.register(connection, select.POLLIN)
        ended = len(poll.poll(0))
        self.assertLess(ended, count // 10)
        for connection in slow:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
        self.assertEqual(self.ask() < LIMIT_SECONDS, True)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""HTTP that two readers could understand differently, a few hundred requests byte by byte: each is refused with one
answer and the end of the connection, and nothing of what follows it is taken for a request."""
import unittest

from serve_harness import ServeTest

HOST = b"Host: localhost\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\n" + HOST
GET = b"GET /health HTTP/1.1\r\n" + HOST
NEXT = b"GET /version HTTP/1.1\r\n" + HOST + b"\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
CONTROLS = [byte for byte in range(0x20) if byte not in b"\t\r\n"] + [0x7F]


def lengths():
    for value in (b"+2", b"-2", b"0x2", b"2 2", b"2,2", b"2, 2", b"2;", b"2.0", b"2e0", b"two", b"", b" ", b"\"2\"", b"2_",
                  b"_2", b"0b10", b"2\t2", b"\xb2", b"18446744073709551616", b"18446744073709551618",
                  b"99999999999999999999999999", b"-0", b"2\x0b", b"\x0c2", b"2\xa0"):
        yield f"length {value!r}", POST + b"Content-Length: " + value + b"\r\n\r\n{}", (400,)
    for first, second in ((b"2", b"2"), (b"2", b"3"), (b"0", b"2"), (b"2", b"0"), (b"2", b""), (b"2", b"x")):
        for name in (b"Content-Length", b"content-length", b"CONTENT-LENGTH"):
            yield (f"lengths {first} {second} {name}", POST + b"Content-Length: " + first + b"\r\n" + name + b": " + second +
                   b"\r\n\r\n{}", (400,))
    for value in (b"16777217", b"99999999999999", b"9223372036854775807", b"9223372036854775808",
                  b"18446744073709551615"):
        yield f"length {value}", POST + b"Content-Length: " + value + b"\r\n\r\n{}", (413,)
    yield "a body where none is taken", GET + b"Content-Length: 5\r\n\r\nhello", (400,)


def encodings():
    body = b"\r\n0\r\n\r\n"
    for value in (b"chunked, chunked", b"gzip, chunked", b"chunked, gzip", b"identity", b"gzip", b"xchunked", b"chunkedx",
                  b"chunked;q=1", b"\"chunked\"", b"'chunked'", b"chunked,", b",chunked", b"", b"chunke\xc4\x8f", b"x",
                  b"\x0bchunked", b"chunked\x0b", b"\x00chunked", b"chunked\x00", b"chun ked", b"identity, chunked"):
        yield f"encoding {value!r}", POST + b"Transfer-Encoding: " + value + b"\r\n" + body, (400,)
    for encoding in (b"Transfer-Encoding", b"transfer-encoding", b"TRANSFER-ENCODING"):
        for length in (b"0", b"2", b"5", b"x"):
            both = (encoding + b": chunked\r\n", b"Content-Length: " + length + b"\r\n")
            yield f"{encoding} and length {length}", POST + both[0] + both[1] + body, (400,)
            yield f"length {length} and {encoding}", POST + both[1] + both[0] + body, (400,)
        yield f"two of {encoding}", POST + encoding + b": chunked\r\nTransfer-Encoding: chunked\r\n" + body, (400,)
        yield f"{encoding} and identity", POST + encoding + b": chunked\r\nTransfer-Encoding: identity\r\n" + body, (400,)
    yield "chunks in HTTP/1.0", POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n" + body, (400,)


def chunks():
    for size in (b"-2", b"+2", b"0x2", b" 2", b"\t2", b"", b"g", b"2g", b"zz", b"2,", b"fffffffffffffffff", b"\x002", b"2\x00",
                 b"\xb2", b"2.0", b"00000000000000000000000000000000g", b"-", b"1 1", b"2\x0b", b"2\x7f", b"2;\x00", b"2;a\x00"):
        yield f"chunk size {size!r}", CHUNKED + size + b"\r\n{}\r\n0\r\n\r\n", (400,)
    for size in (b"1000001", b"ffffffff", b"7fffffffffffffff", b"ffffffffffffffff", b"10000000000000000"):
        yield f"chunk size {size!r}", CHUNKED + size + b"\r\n{}\r\n0\r\n\r\n", (400, 413)
    for end in (b"\n", b"\r", b"\n\r", b"\r\r\n", b"\r\x00", b" \n"):
        yield f"a chunk's size ends with {end!r}", CHUNKED + b"2" + end + b"{}\r\n0\r\n\r\n", (400,)
        yield f"a chunk ends with {end!r}", CHUNKED + b"2\r\n{}" + end + b"0\r\n\r\n", (400,)
        yield f"an extension ends with {end!r}", CHUNKED + b"2;a=b" + end + b"{}\r\n0\r\n\r\n", (400,)
    for data in (b"1\r\n{}\r\n0\r\n\r\n", b"3\r\n{}\r\n0\r\n\r\n", b"2\r\n{}0\r\n\r\n", b"2\r\n{}}\r\n0\r\n\r\n"):
        yield f"chunks {data!r}", CHUNKED + data, (400,)
    for trailer in (b"X\r\n", b": y\r\n", b"X : y\r\n", b"X: y\n", b" X: y\r\n", b"X: \x00\r\n", b"X\x00: y\r\n"):
        yield f"trailer {trailer!r}", CHUNKED + b"2\r\n{}\r\n0\r\n" + trailer + b"\r\n", (400,)
    yield "an endless extension", CHUNKED + b"1;" + b"a" * (1 << 19), (400,)
    yield "an endless trailer", CHUNKED + b"0\r\nX: " + b"a" * (1 << 19), (400,)


def lines():
    """Every line's end in turn is written in every wrong way."""
    whole = GET + b"X: a\r\nY: b\r\n\r\n"
    ends = [place for place in range(len(whole)) if whole.startswith(b"\r\n", place)]
    for place in ends:
        for end in (b"\n", b"\r", b"\n\r", b"\r\r\n", b"\r\x00", b"\x0b", b"\x85"):
            # Another byte in place of an end only makes the line longer; what follows is then no end of the head.
            if end == b"\x85" and place != ends[0]:
                continue
            yield f"line's end at {place} is {end!r}", whole[:place] + end + whole[place + 2:], (400, 505)
    for place in ends[:-2]:
        for fold in (b" ", b"\t", b"  x", b"\tX: y"):
            yield (f"a line that goes on at {place} with {fold!r}",
                   whole[:place + 2] + fold + b"\r\n" + whole[place + 2:], (400,))
    for start in (b"\r\n", b"\n", b"\r", b" ", b"\t", b"\x00", b"\xef\xbb\xbf", b"\r\n\r\n"):
        yield f"begins with {start!r}", start + GET + b"\r\n", (400,)


def headers():
    for control in CONTROLS:
        byte = bytes([control])
        yield f"{byte!r} in a value", GET + b"X: a" + byte + b"b\r\n\r\n", (400,)
        yield f"{byte!r} in a name", GET + b"X" + byte + b"Y: a\r\n\r\n", (400,)
        yield f"{byte!r} in the target", b"GET /heal" + byte + b"th HTTP/1.1\r\n" + HOST + b"\r\n", (400,)
        yield f"{byte!r} in the method", b"GE" + byte + b"T /health HTTP/1.1\r\n" + HOST + b"\r\n", (400,)
    for mark in b" \t\"(),/;<=>?@[\\]{}\x80\xff":
        byte = bytes([mark])
        yield f"{byte!r} in a name", GET + b"X" + byte + b"Y: a\r\n\r\n", (400,)
        yield f"{byte!r} after a name", GET + b"X" + byte + b": a\r\n\r\n", (400,)
    for name in (b"Host", b"Content-Length", b"Transfer-Encoding", b"Authorization", b"X"):
        yield f"{name} with a space before its colon", GET + name + b" : 0\r\n\r\n", (400,)
        yield f"{name} with a tab before its colon", GET + name + b"\t: 0\r\n\r\n", (400,)
    yield "no name", GET + b": a\r\n\r\n", (400,)
    yield "no colon", GET + b"X\r\n\r\n", (400,)
    yield "two hosts", GET + HOST + b"\r\n", (400,)
    yield "two hosts that differ", GET + b"Host: evil.example\r\n\r\n", (400,)
    yield "no host", b"GET /health HTTP/1.1\r\n\r\n", (400,)
    yield "two keys", GET + b"Authorization: Bearer a\r\nauthorization: Bearer b\r\n\r\n", (400,)
    yield "101 headers", GET + b"X: a\r\n" * 100 + b"\r\n", (400,)
    yield "a line of 8 KiB and one", GET + b"X: " + b"a" * 8190 + b"\r\n\r\n", (431,)
    yield "a long first line", b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", (431,)
    yield "a head of more than 16 KiB", GET + (b"X: " + b"a" * 4000 + b"\r\n") * 5 + b"\r\n", (431,)
    yield "a head without an end", GET + b"X: " + b"a" * 20000, (431,)


def first_lines():
    for version in (b"HTTP/2.0", b"HTTP/1.2", b"HTTP/0.9", b"HTTP/3.0", b"HTTP/9.9"):
        yield f"version {version}", GET.replace(b"HTTP/1.1", version) + b"\r\n", (505, 400)
    for version in (b"HTTP/1.10", b"HTTP/1.1x", b"http/1.1", b"HTTP/11", b"HTTP/1,1", b"HTTP /1.1", b"HTTP/1. 1", b"HTTP/01.1",
                    b"HTTP/1", b"HTTP/", b"HTTP", b"HTTPS/1.1", b"", b"\"HTTP/1.1\"", b"HTTP/1.1 x", b"HTTP/1.1\t"):
        yield f"version {version!r}", GET.replace(b"HTTP/1.1", version) + b"\r\n", (400, 505)
    for line in (b"GET  /health HTTP/1.1", b"GET /health  HTTP/1.1", b"GET\t/health HTTP/1.1", b"GET /health\tHTTP/1.1",
                 b" GET /health HTTP/1.1", b"GET /health", b"GET", b"/health HTTP/1.1", b"GET /a b HTTP/1.1", b"hello", b"G\xc3\x89T /health HTTP/1.1",
                 b"GE(T /health HTTP/1.1", b"GET: /health HTTP/1.1", b"\"GET\" /health HTTP/1.1"):
        yield f"first line {line!r}", line + b"\r\n" + HOST + b"\r\n", (400, 505)  # where no version stands
    for target in (b"http://localhost/health", b"https://evil.example/health", b"//health", b"*", b"health", b"localhost:80",
                   b"/./health", b"/../health", b"/v1/../health", b"/v1/%2e%2e/health", b"/%2E/health", b"/v1/.%2e/health",
                   b"/v1//models", b"/%2fhealth//x", b"/health\\x", b"/health%5cx", b"/health%00", b"/health%0d%0aX:y",
                   b"/health%0a", b"/health%7f", b"/health%1f", b"/health%", b"/health%2", b"/health%zz", b"/health%-1",
                   b"/health#x", b"/" + b"a" * 2000, b"/health%u0041"):
        yield f"target {target[:40]!r}", b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n", (400,)
    yield "a tunnel", b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n", (400,)
    for expectation in (b"tea", b"100-continue, tea", b"200-ok", b"100-continue;x"):
        yield (f"expects {expectation}", POST + b"Expect: " + expectation + b"\r\nContent-Length: 2\r\n\r\n{}", (417,))


class Cases(ServeTest):
    def run_cases(self, cases, at_least):
        count = 0
        for name, data, statuses in cases:
            with self.subTest(case=name):
                answer = self.server.raw(data + NEXT)
                self.assertTrue(answer.startswith(b"HTTP/1."), answer[:100])
                self.assertIn(int(answer.split(b" ", 2)[1]), statuses, answer[:300])
                self.assertEqual(answer.count(b"\r\nServer: "), 1, answer)
                self.assertIn(b"\r\nConnection: close\r\n", answer)
                self.assertNotIn(b'"version"', answer)
            count += 1
        self.assertGreaterEqual(count, at_least)
        self.assertEqual(self.server.request("GET", "/health")[0], 200)

    def test_lengths(self):
        self.run_cases(lengths(), 45)

    def test_encodings(self):
        self.run_cases(encodings(), 50)

    def test_chunks(self):
        self.run_cases(chunks(), 50)

    def test_lines(self):
        self.run_cases(lines(), 45)

    def test_headers(self):
        self.run_cases(headers(), 150)

    def test_first_lines(self):
        self.run_cases(first_lines(), 65)


if __name__ == "__main__":
    unittest.main()

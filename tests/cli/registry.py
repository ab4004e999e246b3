"""A registry of models on this machine, as Ollama's clients know them: manifests and blobs, with the faults of real ones."""
import hashlib
import http.server
import json
import re
import ssl
import threading

LAYER = "application/vnd.ollama.image."


class Registry:
    def __init__(self, certificate=None):
        """`certificate`: a file with a key and a certificate for localhost, where it is to speak TLS."""
        self.documents = {}
        self.requests = []  # path and Range of each
        self.cut_after = None  # bytes of a blob, after which the connection breaks
        self.no_ranges = False
        self.redirect_to = None  # where blobs are
        self.hold = None  # an event that the second half of a blob waits for
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.url = f"https://localhost:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def add_blob(self, kind, data, repository="library/toy"):
        """The layer that a manifest has for it."""
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.documents[f"/v2/{repository}/blobs/{digest}"] = data
        return {"mediaType": LAYER + kind, "digest": digest, "size": len(data)}

    def add_model(self, tag, *layers, repository="library/toy"):
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
                    "config": {}, "layers": list(layers)}
        self.documents[f"/v2/{repository}/manifests/{tag}"] = json.dumps(manifest).encode()

    def _handler(registry):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                registry.requests.append((self.path, self.headers.get("Range")))
                data = registry.documents.get(self.path)
                is_blob = "/blobs/" in self.path
                if is_blob and registry.redirect_to:
                    return self.answer(307, b"", {"Location": registry.redirect_to + self.path})
                if data is None:
                    return self.answer(404, b'{"errors":[]}', {})
                asked = re.match(r"bytes=(\d+)-", self.headers.get("Range") or "")
                if asked and not registry.no_ranges:
                    begin = int(asked.group(1))
                    return self.answer(206, data[begin:],
                                       {"Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"}, is_blob)
                return self.answer(200, data, {}, is_blob)

            def answer(self, status, data, headers, may_break=False):
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if may_break and registry.cut_after is not None and len(data) > registry.cut_after:
                    self.wfile.write(data[:registry.cut_after])
                    self.close_connection = True
                    return
                half = len(data) // 2 if may_break and registry.hold else len(data)
                self.wfile.write(data[:half])
                if half < len(data):
                    self.wfile.flush()
                    registry.hold.wait(60)
                    try:
                        self.wfile.write(data[half:])
                    except BrokenPipeError:  # who asked has left meanwhile
                        self.close_connection = True

            def log_message(self, *arguments):
                pass

        return Handler

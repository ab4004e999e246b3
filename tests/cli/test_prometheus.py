#!/usr/bin/env python3
"""A real Prometheus (Debian's package) scrapes a running server. PROMETHEUS names the program where it is not in PATH."""
import http.client
import json
import os
import shutil
import socket
import subprocess
import time
import unittest
import urllib.parse

from harness import TIMEOUT
from serve_harness import ServeTest

UNPACKED = os.path.join(os.path.dirname(__file__), "../../.prometheus/usr/bin")  # by scripts/setup prometheus
PROMETHEUS = os.environ.get("PROMETHEUS") or shutil.which("prometheus") or shutil.which("prometheus", path=UNPACKED)
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: quarrel
    authorization: {{credentials: qk_scraper}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def free_port():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


@unittest.skipUnless(PROMETHEUS, "there is no prometheus here: scripts/setup prometheus")
class Prometheus(ServeTest):
    @classmethod
    def prepare(cls):
        cls.environment["QUARREL_API_KEY"] = "qk_scraper"
        cls.models += [cls.make_toy("chat-mixtral", "experts.gguf"), cls.make_toy("chat-mamba2", "recurrent.gguf")]

    def query(self, expression):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            connection.request("GET", "/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
            return json.loads(connection.getresponse().read())["data"]["result"]
        except (OSError, KeyError, ValueError):
            return []
        finally:
            connection.close()

    def wait_for(self, expression):
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            if found := self.query(expression):
                return found
            time.sleep(0.2)
        raise AssertionError(expression)

    def test_it_scrapes_every_name(self):
        key = {"Authorization": "Bearer qk_scraper"}
        for model in ("toy", "experts", "recurrent"):
            status, answer = self.server.post("/v1/completions", {
                "model": model, "prompt": "Hello", "max_tokens": 100, "temperature": 1, "seed": 3}, headers=key)
            self.assertEqual(status, 200, answer)
        self.assertEqual(self.server.post("/v1/completions", {"model": "nobody", "prompt": ""}, headers=key)[0], 404)
        config = self.path("prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(port=self.server.port))
        type(self).port = free_port()
        process = subprocess.Popen(
            [PROMETHEUS, "--config.file=" + config, "--storage.tsdb.path=" + self.path("series"),
             f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=error"], stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.wait_for('up{job="quarrel"} == 1')
        for name in ("quarrel_webui_connections_active", "quarrel_webui_requests_total",
                     "quarrel_webui_inference_duration_seconds_bucket", "quarrel_webui_tokens_total",
                     "quarrel_webui_errors_total", "quarrel_moe_layer_latency_seconds_bucket",
                     "quarrel_moe_expert_selection", "quarrel_moe_routing_latency_seconds_bucket",
                     "quarrel_moe_expert_utilization", "quarrel_ssm_scan_latency_seconds_bucket",
                     "quarrel_ssm_conv_latency_seconds_bucket", "quarrel_ssm_state_size_bytes",
                     "quarrel_ssm_divergence_total", "quarrel_time_to_first_token_seconds_bucket",
                     "quarrel_inter_token_latency_seconds_bucket", "quarrel_request_queue_time_seconds_bucket",
                     "quarrel_kv_cache_usage_ratio", "quarrel_prefix_cache_hit_tokens_total",
                     "quarrel_preemptions_total", "quarrel_batch_size_bucket", "process_resident_memory_bytes"):
            self.assertTrue(self.wait_for(name), name)
        slow = 'histogram_quantile(0.95, sum by (le) (quarrel_inter_token_latency_seconds_bucket{model="toy"}))'
        self.assertGreater(float(self.wait_for(slow)[0]["value"][1]), 0)
        shares = self.wait_for("sum by (layer) (quarrel_moe_expert_utilization)")
        self.assertTrue(all(abs(float(share["value"][1]) - 1) < 1e-6 for share in shares), shares)
        health = self.wait_for('scrape_samples_scraped{job="quarrel"}')
        self.assertGreater(float(health[0]["value"][1]), 100)


if __name__ == "__main__":
    unittest.main()

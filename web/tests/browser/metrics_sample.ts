// Figures of a server under a load that comes and goes, in the form of /api/metrics, further on at each call.

const bounds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

function histogram(name: string, seconds: readonly number[]): unknown {
  const buckets = bounds.map((le) => ({ le, count: seconds.filter((value) => value <= le).length }));
  return { name, help: "", type: "histogram", metrics: [{ labels: { model: "default" }, count: seconds.length, sum: seconds.reduce((sum, value) => sum + value, 0), buckets }] };
}

function single(name: string, type: string, value: number, labels: Record<string, string> = { model: "default" }): unknown {
  return { name, help: "", type, metrics: [{ labels, value }] };
}

export function dashboardMetrics(): () => unknown {
  let call = 0;
  const first: number[] = [];
  const gaps: number[] = [];
  let tokens = 0;
  return () => {
    call += 1;
    const load = 0.5 + 0.5 * Math.sin(call / 4);
    for (let at = 0; at < 20; at += 1) {
      first.push(0.08 + 0.3 * load * ((at * 7) % 20) / 20);
      gaps.push(0.012 + 0.02 * load * ((at * 3) % 20) / 20);
    }
    tokens += Math.round(40 + 160 * load);
    return { metrics: [
      single("quarrel_requests_running", "gauge", Math.round(load * 8)), single("quarrel_requests_waiting", "gauge", Math.round(Math.max(0, load - 0.6) * 10)),
      { name: "quarrel_webui_tokens_total", help: "", type: "counter", metrics: [{ labels: { model: "default", type: "generated" }, value: tokens }, { labels: { model: "default", type: "prompt" }, value: tokens * 3 }] },
      histogram("quarrel_time_to_first_token_seconds", first), histogram("quarrel_inter_token_latency_seconds", gaps),
      single("quarrel_kv_cache_usage_ratio", "gauge", 0.1 + 0.5 * load), single("quarrel_model_memory_bytes", "gauge", 895_979_904), single("process_resident_memory_bytes", "gauge", 1_049_741_568, {}),
      single("quarrel_prefix_cache_hit_tokens_total", "counter", tokens * 2), single("quarrel_prefix_cache_miss_tokens_total", "counter", tokens),
      single("quarrel_webui_errors_total", "counter", Math.floor(call / 20), { type: "unavailable_error" }), single("quarrel_webui_requests_total", "counter", call * 20),
    ] };
  };
}

#include "app/serve_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "app/input.h"
#include "app/state_folder.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/printable.h"
#include "server/http/client.h"
#include "server/key_store.h"

namespace quarrel {
namespace {

constexpr double kDay = 86400.0;
constexpr double kForever = 1e9;  // seconds
constexpr double kMostContext = 1 << 26;
constexpr double kMostCacheTokens = 1 << 30;

using Kind = SettingKind;
using Settings = ServeSettings;
using Value = SettingValue;
using Row = Setting<ServeSettings>;

template <typename Number>
Number whole(const Value& value) {
  return static_cast<Number>(value.integer());
}

// A time limit of a connection.
Row limit_seconds(const char* key, const char* flag, const char* fallback,
                  std::chrono::milliseconds http::Limits::* member, const char* help, double least = 0.1) {
  return {{.key = key,
           .flags = flag,
           .kind = Kind::number,
           .least = least,
           .most = kDay,
           .value_name = "SECONDS",
           .fallback = fallback,
           .help = help},
          [member](Settings& s, const Value& v) { s.serve.http.limits.*member = v.seconds(); }};
}

std::vector<Row> server_rows() {
  return {
      {{.key = "server.host",
        .flags = "--host",
        .value_name = "ADDRESS",
        .fallback = "127.0.0.1",
        .help = "Address to listen on; beyond this machine only with keys, or --open"},
       [](Settings& s, const Value& v) { s.serve.http.address = v.text() == "localhost" ? "127.0.0.1" : v.text(); }},
      {{.key = "server.port",
        .flags = "--port",
        .variables = {"QUARREL_PORT", "WEBUI_PORT"},
        .kind = Kind::integer,
        .most = 65535,
        .value_name = "N",
        .fallback = "8080",
        .help = "Port to listen on; 0: any free one"},
       [](Settings& s, const Value& v) { s.serve.http.port = whole<std::uint16_t>(v); }},
      {{.key = "server.ollama_port",
        .flags = "--ollama-port",
        .kind = Kind::integer,
        .most = 65535,
        .value_name = "N",
        .help = "Listen on this port too, where Ollama's clients look for it: 11434"},
       [](Settings& s, const Value& v) { s.serve.http.further_ports = {whole<std::uint16_t>(v)}; }},
      {{.key = "server.flight_port",
        .flags = "--flight-port",
        .kind = Kind::integer,
        .most = 65535,
        .value_name = "N",
        .help = "Serve Arrow Flight on this port too (0: a free one); without it there is none"},
       [](Settings& s, const Value& v) { s.serve.flight_port = whole<std::uint16_t>(v); }},
      {{.key = "server.unix_socket",
        .flags = "--unix-socket",
        .value_name = "PATH",
        .usual = default_unix_socket,
        .help = "Listen on this socket too, for your own user alone; `run`, `ps` and `stop` look for a server there; "
                "default: quarrel/server.sock in XDG_RUNTIME_DIR; none: on no socket"},
       [](Settings& s, const Value& v) { s.serve.http.unix_socket = v.text(); }},
      {{.key = "server.tls_cert",
        .flags = "--tls-cert",
        .value_name = "FILE",
        .help = "Speak TLS with this certificate (PEM, with those it depends on); SIGHUP reads it again"},
       [](Settings& s, const Value& v) { s.serve.http.tls.certificate = v.text(); }},
      {{.key = "server.tls_key", .flags = "--tls-key", .value_name = "FILE", .help = "The certificate's private key"},
       [](Settings& s, const Value& v) { s.serve.http.tls.key = v.text(); }},
      {{.key = "server.allowed_hosts",
        .flags = "--allow-host",
        .kind = Kind::texts,
        .value_name = "NAME",
        .help = "Another host name that requests may be addressed to"},
       [](Settings& s, const Value& v) { s.serve.admission.allowed_hosts = v.texts(); }},
      {{.key = "server.allowed_origins",
        .flags = "--allow-origin",
        .kind = Kind::texts,
        .value_name = "ORIGIN",
        .help = "Pages from there may call the server: https://example.org, or * for all"},
       [](Settings& s, const Value& v) { s.serve.admission.allowed_origins = v.texts(); }},
      {{.key = "server.keys",
        .flags = "--keys",
        .value_name = "FILE",
        .usual = [] { return default_key_file().string(); },
        .help = "The file that `quarrel key` keeps; default: quarrel/keys.json in XDG_DATA_HOME or ~/.local/share"},
       [](Settings& s, const Value& v) { s.serve.admission.keys.file = v.text(); }},
      {{.key = "server.open",
        .flags = "--open",
        .kind = Kind::flag,
        .fallback = "false",
        .help = "Let other machines ask without a key"},
       [](Settings& s, const Value& v) { s.serve.admission.open = v.flag(); }},
      {{.key = "server.public_metrics",
        .flags = "--public-metrics",
        .kind = Kind::flag,
        .fallback = "false",
        .help = "Metrics need no key"},
       [](Settings& s, const Value& v) { s.serve.admission.public_metrics = v.flag(); }},
      {{.key = "server.api_key_file",
        .flags = "--api-key-file",
        .value_name = "FILE",
        .help = "A file with one key, beside those of the file of keys; takes precedence over QUARREL_API_KEY"},
       [](Settings& s, const Value& v) { s.api_key_file = v.text(); }},
      {{.variables = {"QUARREL_API_KEY"},
        .secret = true,
        .help = "One key, beside those of the file of keys; it may do everything"},
       [](Settings& s, const Value& v) { s.serve.admission.keys.single_key = v.text(); }},
      {{.key = "server.default_model",
        .flags = "--default-model",
        .value_name = "NAME",
        .help = "The model of requests that name none, where `serve` was given no names"},
       [](Settings& s, const Value& v) { s.serve.service.default_model = v.text(); }},
      {{.key = "server.generate_dialect",
        .flags = "--generate-dialect",
        .kind = Kind::choice,
        .choices = {"auto", "native", "ollama"},
        .value_name = "NAME",
        .fallback = "auto",
        .help = "Which API POST /api/generate follows: Quarrel's own, Ollama's, or whichever the body looks like"},
       [](Settings& s, const Value& v) {
         s.serve.service.generate_dialect = v.text() == "native"   ? GenerateDialect::native
                                            : v.text() == "ollama" ? GenerateDialect::ollama
                                                                   : GenerateDialect::automatic;
       }},
      {{.key = "server.io_threads",
        .flags = "--io-threads",
        .kind = Kind::integer,
        .least = 1,
        .most = 64,
        .value_name = "N",
        .fallback = "1",
        .help = "Threads that read requests and send answers"},
       [](Settings& s, const Value& v) { s.serve.http.threads = whole<int>(v); }},
      {{.key = "server.text_threads",
        .flags = "--text-threads",
        .kind = Kind::integer,
        .least = 1,
        .most = 64,
        .value_name = "N",
        .fallback = "2",
        .help = "Threads that parse request bodies and tokenise texts"},
       [](Settings& s, const Value& v) { s.serve.service.text_threads = whole<int>(v); }},
      {{.key = "server.drain",
        .flags = "--drain",
        .kind = Kind::number,
        .most = kDay,
        .value_name = "SECONDS",
        .fallback = "30",
        .help = "Seconds that running answers get when the server ends"},
       [](Settings& s, const Value& v) { s.drain = v.seconds(); }},
  };
}

std::vector<Row> limit_rows() {
  return {
      {{.key = "limits.connections",
        .flags = "--max-connections",
        .kind = Kind::integer,
        .least = 1,
        .most = 1e6,
        .value_name = "N",
        .fallback = "10000",
        .help = "Connections at once; beyond that, the oldest one whose request has not arrived is closed"},
       [](Settings& s, const Value& v) { s.serve.http.limits.connections = whole<std::size_t>(v); }},
      {{.key = "limits.connections_per_address",
        .flags = "--max-connections-per-address",
        .kind = Kind::integer,
        .most = 1e6,
        .value_name = "N",
        .fallback = "256",
        .help = "The same for one address of another machine; 0: no limit"},
       [](Settings& s, const Value& v) { s.serve.http.limits.connections_per_address = whole<std::size_t>(v); }},
      {{.key = "limits.body_bytes_together",
        .flags = "--max-body-bytes-together",
        .kind = Kind::bytes,
        .least = 1 << 20,
        .most = 1e15,
        .value_name = "SIZE",
        .fallback = "256M",
        .help = "Most bytes of all request bodies together at any time"},
       [](Settings& s, const Value& v) { s.serve.http.limits.body_bytes_together = whole<std::size_t>(v); }},
      {{.key = "limits.websocket_message_bytes",
        .flags = "--max-websocket-message",
        .kind = Kind::bytes,
        .least = 1024,
        .most = 1 << 30,
        .value_name = "SIZE",
        .fallback = "1M",
        .help = "Largest message of a WebSocket"},
       [](Settings& s, const Value& v) { s.serve.http.limits.websocket_message_bytes = whole<std::size_t>(v); }},
      {{.key = "limits.websocket_idle_time",
        .flags = "--websocket-idle-time",
        .kind = Kind::number,
        .most = kForever,
        .value_name = "SECONDS",
        .fallback = "3600",
        .help = "Time that a WebSocket may go without a message; 0: forever"},
       [](Settings& s, const Value& v) { s.serve.http.limits.websocket_idle_time = v.seconds(); }},
      {{.key = "limits.header_bytes",
        .flags = "--max-header-bytes",
        .kind = Kind::integer,
        .least = 1024,
        .most = 65536,
        .value_name = "N",
        .fallback = "16384",
        .help = "Most bytes of a request's headers"},
       [](Settings& s, const Value& v) { s.serve.http.limits.header_bytes = whole<std::uint32_t>(v); }},
      {{.key = "limits.buffered_bytes",
        .flags = "--max-buffered-bytes",
        .kind = Kind::integer,
        .least = 4096,
        .most = 1 << 30,
        .value_name = "N",
        .fallback = "1M",
        .help = "Most bytes buffered for a client that does not read; beyond that, its request ends"},
       [](Settings& s, const Value& v) {
         s.serve.http.limits.buffered_bytes = whole<std::size_t>(v);
         s.serve.service.sockets.resume.bytes_at_once = s.serve.http.limits.buffered_bytes / 2;
       }},
      {{.key = "limits.queue",
        .flags = "--queue",
        .kind = Kind::integer,
        .least = 1,
        .most = 1e6,
        .value_name = "N",
        .fallback = "1024",
        .help = "Requests that may wait for a model; more are refused"},
       [](Settings& s, const Value& v) { s.serve.service.load.engine.queue_limit = whole<std::int32_t>(v); }},
      {{.key = "limits.queue_tokens",
        .flags = "--queue-tokens",
        .kind = Kind::integer,
        .least = 1,
        .most = kMostCacheTokens,
        .value_name = "N",
        .fallback = "4M",
        .help = "Most tokens of these requests together"},
       [](Settings& s, const Value& v) { s.serve.service.load.engine.queue_token_limit = v.integer(); }},
      {{.key = "limits.patience",
        .flags = "--patience",
        .kind = Kind::number,
        .most = kDay,
        .value_name = "SECONDS",
        .fallback = "300",
        .help = "Time that a request may wait for its model, for its start, and then for each token; 0: forever"},
       [](Settings& s, const Value& v) { s.serve.service.patience = v.seconds(); }},
      limit_seconds("limits.header_time", "--header-time", "10", &http::Limits::header_time,
                    "Time from a request's first byte to its last header"),
      limit_seconds("limits.body_time", "--body-time", "60", &http::Limits::body_time,
                    "Time for a request's body, and for a WebSocket's message once it has begun"),
      limit_seconds("limits.idle_time", "--idle-time", "75", &http::Limits::idle_time,
                    "Time that a connection may stay open without a request"),
      limit_seconds("limits.write_time", "--write-time", "30", &http::Limits::write_time,
                    "Time that a client may go without reading its answer"),
      limit_seconds(
          "limits.comment_time", "--comment-time", "5", &http::Limits::comment_time,
          "Time after which a silent event stream gets a comment, so that proxies and clients keep it open; 0: none",
          0.0),
      limit_seconds(
          "limits.websocket_ping_time", "--websocket-ping-time", "20", &http::Limits::websocket_ping_time,
          "Time after which a silent WebSocket is sent a ping; without an answer for as long again it is closed"),
  };
}

std::vector<Row> websocket_rows() {
  return {
      {{.key = "websocket.messages_per_second",
        .flags = "--ws-messages",
        .kind = Kind::number,
        .least = 0.1,
        .most = 1e6,
        .value_name = "N",
        .fallback = "50",
        .help = "Messages per second that a WebSocket may send; twice as many in a burst"},
       [](Settings& s, const Value& v) { s.serve.service.sockets.messages_per_second = v.number(); }},
      {{.key = "websocket.running",
        .flags = "--ws-running",
        .kind = Kind::integer,
        .least = 1,
        .most = 1e6,
        .value_name = "N",
        .fallback = "64",
        .help = "Answers that a WebSocket may have running at once"},
       [](Settings& s, const Value& v) { s.serve.service.sockets.running = whole<std::size_t>(v); }},
      {{.key = "websocket.running_of_model",
        .flags = "--ws-running-of-model",
        .kind = Kind::integer,
        .least = 1,
        .most = 1e6,
        .value_name = "N",
        .fallback = "256",
        .help = "Answers of one model that all WebSockets together may have running at once"},
       [](Settings& s, const Value& v) { s.serve.service.sockets.running_of_model = whole<std::size_t>(v); }},
      {{.key = "websocket.broadcast",
        .flags = "--ws-broadcast",
        .kind = Kind::number,
        .most = kDay,
        .value_name = "SECONDS",
        .fallback = "5",
        .help = "Time between two broadcasts of metrics to WebSockets; 0: none"},
       [](Settings& s, const Value& v) { s.serve.service.sockets.broadcast = v.seconds(); }},
      {{.key = "websocket.resume_time",
        .flags = "--resume-time",
        .kind = Kind::number,
        .most = kDay,
        .value_name = "SECONDS",
        .fallback = "60",
        .help = "Time that an answer with `resume` goes on after its connection was lost"},
       [](Settings& s, const Value& v) { s.serve.service.sockets.resume.kept = v.seconds(); }},
  };
}

std::vector<Row> engine_rows() {
  return {
      {{.key = "engine.parallel",
        .flags = "--parallel",
        .kind = Kind::integer,
        .least = 1,
        .most = 1024,
        .value_name = "N",
        .fallback = "16",
        .help = "Answers that a model computes at once; more wait"},
       [](Settings& s, const Value& v) { s.parallel = whole<std::int32_t>(v); }},
      {{.key = "engine.cache_tokens",
        .flags = "--cache-tokens",
        .kind = Kind::integer,
        .least = 1,
        .most = kMostCacheTokens,
        .value_name = "N",
        .fallback = "32k",
        .help = "Tokens that a model's KV cache holds for all answers together, and one context at least"},
       [](Settings& s, const Value& v) { s.cache_tokens = whole<std::int32_t>(v); }},
      {{.key = "engine.keep_alive",
        .flags = "--keep-alive",
        .kind = Kind::number,
        .least = -kForever,
        .most = kForever,
        .value_name = "SECONDS",
        .fallback = "300",
        .help = "Seconds that an unused model stays loaded; below 0: forever"},
       [](Settings& s, const Value& v) { s.serve.service.keep_alive = v.seconds(); }},
  };
}

std::vector<Row> watch_rows() {
  return {
      {{.key = "log.format",
        .flags = "--log-format",
        .kind = Kind::choice,
        .choices = {"auto", "text", "json"},
        .value_name = "NAME",
        .fallback = "auto",
        .help = "Lines of the log: text, json, or auto: text on a terminal"},
       [](Settings& s, const Value& v) {
         s.serve.watch.log.format = v.text() == "text"   ? LogFormat::text
                                    : v.text() == "json" ? LogFormat::json
                                                         : LogFormat::automatic;
       }},
      {{.key = "log.level",
        .flags = "--log-level",
        .kind = Kind::choice,
        .choices = {"debug", "info", "warning", "error"},
        .value_name = "NAME",
        .fallback = "info",
        .help = "Lowest level that is logged"},
       [](Settings& s, const Value& v) {
         s.serve.watch.log.least = v.text() == "debug"     ? LogLevel::debug
                                   : v.text() == "warning" ? LogLevel::warning
                                   : v.text() == "error"   ? LogLevel::error
                                                           : LogLevel::info;
       }},
      {{.key = "log.file",
        .flags = "--log-file",
        .value_name = "FILE",
        .help = "Log to this file, which SIGHUP reopens, in place of standard error"},
       [](Settings& s, const Value& v) { s.serve.watch.log.file = v.text(); }},
      {{.key = "traces.endpoint",
        .flags = "--otlp-endpoint",
        .variables = {"OTEL_EXPORTER_OTLP_ENDPOINT"},
        .value_name = "URL",
        .help = "Send traces to this collector, for example http://localhost:4318"},
       [](Settings& s, const Value& v) { s.serve.watch.otlp_endpoint = v.text(); }},
      {{.key = "traces.service",
        .flags = "--trace-service",
        .variables = {"OTEL_SERVICE_NAME"},
        .value_name = "NAME",
        .fallback = "quarrel",
        .help = "What the server is called in traces"},
       [](Settings& s, const Value& v) { s.serve.watch.trace_service = v.text(); }},
  };
}

std::vector<Row> pull_rows() {
  return {
      {{.key = "pull.registry",
        .flags = "--registry",
        .value_name = "URL",
        .help = "Registry that POST /api/pull fetches models from; without one it fetches none"},
       [](Settings& s, const Value& v) { s.serve.service.pull.registry = v.text(); }},
      {{.key = "pull.hosts",
        .flags = "--pull-host",
        .kind = Kind::texts,
        .value_name = "HOST",
        .help = "Another host, or host:port, that models and their layers may be fetched from"},
       [](Settings& s, const Value& v) { s.serve.service.pull.hosts = v.texts(); }},
  };
}

Row longbow_file(const char* key, const char* flag, std::string LongbowFlags::* member, const char* help) {
  return {{.key = key, .flags = flag, .value_name = "FILE", .help = help},
          [member](Settings& s, const Value& v) { s.longbow.*member = v.text(); }};
}

std::vector<Row> longbow_rows() {
  return {
      {{.key = "longbow.hosts",
        .flags = "--longbow-host",
        .kind = Kind::texts,
        .value_name = "HOST",
        .help = "A host, or host:port, of Longbow that requests may reach; without one they reach none"},
       [](Settings& s, const Value& v) { s.serve.service.longbow.hosts = v.texts(); }},
      {{.key = "longbow.address",
        .flags = "--longbow-address",
        .value_name = "ADDRESS",
        .help = "The dataset of requests that name none: longbow://host[:3000]/dataset"},
       [](Settings& s, const Value& v) { s.serve.service.longbow.address = v.text(); }},
      longbow_file("longbow.token_file", "--longbow-token-file", &LongbowFlags::token_file,
                   "A file with the token that Longbow asks for"),
      longbow_file("longbow.ca_file", "--longbow-ca-file", &LongbowFlags::authorities,
                   "Certificates that are trusted for Longbow instead of the system's (longbow+tls)"),
      longbow_file("longbow.cert_file", "--longbow-cert-file", &LongbowFlags::certificate,
                   "A certificate of the server's own, where Longbow asks for one"),
      longbow_file("longbow.key_file", "--longbow-key-file", &LongbowFlags::key, "Its key"),
  };
}

// How every command runs a model, under the names of its flags.
Row machine_row(const ModelOptionRow& option) {
  SettingInfo info{.flags = option.flags,
                   .choices = option.choices,
                   .understood = option.understood,
                   .value_name = option.type,
                   .help = option.help};
  std::string name = long_flag(info).substr(2);
  std::ranges::replace(name, '-', '_');
  info.key = "engine." + name;
  const ModelOptions defaults;
  if (const auto* flag = std::get_if<bool ModelOptions::*>(&option.member)) {
    info.kind = Kind::flag;
    info.fallback = "false";
    return {std::move(info), [member = *flag](Settings& s, const Value& v) { s.machine.*member = v.flag(); }};
  }
  if (const auto* number = std::get_if<int ModelOptions::*>(&option.member)) {
    info.kind = Kind::integer;
    info.most = 1 << 20;
    info.fallback = fmt::format("{}", defaults.*(*number));
    return {std::move(info), [member = *number](Settings& s, const Value& v) { s.machine.*member = whole<int>(v); }};
  }
  const auto member = std::get<std::string ModelOptions::*>(option.member);
  info.fallback = defaults.*member;
  const std::string_view type = option.type;
  if (type != "N" && type != "SIZE") {
    info.kind = option.choices.empty() ? Kind::text : Kind::choice;
    return {std::move(info), [member](Settings& s, const Value& v) { s.machine.*member = v.text(); }};
  }
  info.kind = type == "N" ? Kind::integer : Kind::bytes;
  info.least = 1;
  info.most = type == "N" ? kMostContext : 1e18;
  return {std::move(info),
          [member](Settings& s, const Value& v) { s.machine.*member = fmt::format("{}", v.integer()); }};
}

std::vector<Setting<ConfiguredModel>> make_model_rows() {
  using Model = ConfiguredModel;
  return {
      {{.key = "path", .help = "A file that is offered under this name"},
       [](Model& m, const Value& v) { m.path = v.text(); }},
      {{.key = "ctx", .kind = Kind::integer, .least = 2, .most = kMostContext, .help = "Tokens of context"},
       [](Model& m, const Value& v) { m.context = whole<std::int32_t>(v); }},
      {{.key = "parallel", .kind = Kind::integer, .least = 1, .most = 1024, .help = "Answers that it computes at once"},
       [](Model& m, const Value& v) { m.parallel = whole<std::int32_t>(v); }},
      {{.key = "cache_tokens",
        .kind = Kind::integer,
        .least = 1,
        .most = kMostCacheTokens,
        .help = "Tokens that its KV cache holds for all answers together"},
       [](Model& m, const Value& v) { m.cache_tokens = whole<std::int32_t>(v); }},
      {{.key = "keep_alive",
        .kind = Kind::number,
        .least = -kForever,
        .most = kForever,
        .help = "Seconds that it stays loaded unused; below 0: forever"},
       [](Model& m, const Value& v) { m.keep_alive = v.seconds(); }},
  };
}

void set_parallel(ExecutorOptions& executor, std::int32_t parallel) {
  executor.sequences = parallel;
  executor.snapshots = parallel;
}

std::string read_key(const std::string& file) {
  constexpr std::size_t kMostKey = 64u << 10;
  std::string key = read_input(file, kMostKey);
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  if (key.empty()) fail(ErrorKind::usage, "{} has no key in it", file);
  return key;
}

// Clients make the server ask these: what they are must be beyond doubt.
void check_pull(PullSettings& pull) {
  if (!pull.registry.empty() && !http::Url::parse(pull.registry)) {
    fail(ErrorKind::usage, "the registry must be http:// or https:// with a host, not '{}'", printable(pull.registry));
  }
  for (std::string& host : pull.hosts) {
    const std::optional<http::Url> url = http::Url::parse("https://" + host);
    if (!url || url->target != "/") fail(ErrorKind::usage, "'{}' is not a host to pull from", printable(host));
    host = url->authority();
  }
}

}  // namespace

const std::vector<Setting<ServeSettings>>& serve_settings() {
  static const std::vector<Row> rows = [] {
    std::vector<Row> all;
    for (std::vector<Row>& group : std::vector<std::vector<Row>>{
             server_rows(), limit_rows(), websocket_rows(), watch_rows(), pull_rows(), longbow_rows(), engine_rows()}) {
      all.insert(all.end(), group.begin(), group.end());
    }
    for (const ModelOptionRow& option : model_option_rows()) all.push_back(machine_row(option));
    return all;
  }();
  return rows;
}

const std::vector<Setting<ConfiguredModel>>& model_settings() {
  static const std::vector<Setting<ConfiguredModel>> rows = make_model_rows();
  return rows;
}

std::string default_unix_socket() {
  const std::string folder = environment("XDG_RUNTIME_DIR").value_or("");
  return folder.starts_with('/') ? folder + "/quarrel/server.sock" : "";
}

ServeOptions serve_options(const ServeSettings& settings) {
  ServeOptions options = settings.serve;
  check_pull(options.service.pull);
  options.service.longbow.connection = longbow_options(settings.longbow);
  options.service.longbow.journals = state_folder();
  if (!settings.api_key_file.empty()) options.admission.keys.single_key = read_key(settings.api_key_file);
  // One that was named must be there: nobody is to find the server open for a misspelt name.
  std::filesystem::path& keys = options.admission.keys.file;
  if (keys.empty()) {
    keys = default_key_file();
  } else if (!file_stamp(keys)) {
    fail(ErrorKind::not_found, "there is no file of keys '{}'", printable(keys.string(), 512));
  }
  std::string& socket = options.http.unix_socket;
  if (socket == "none") {
    socket.clear();
  } else if (socket.empty()) {
    socket = default_unix_socket();
    options.http.unix_socket_optional = true;
  }
  // Whoever fills the queue leaves some of it to the others.
  EngineOptions& engine = options.service.load.engine;
  engine.key_queue_limit = std::max(1, engine.queue_limit / 2);
  engine.key_queue_token_limit = std::max<std::int64_t>(1, engine.queue_token_limit / 2);
  ExecutorOptions& executor = options.service.load.executor;
  executor = executor_options(settings.machine);
  set_parallel(executor, settings.parallel);
  executor.cache_tokens = settings.cache_tokens;
  for (const auto& [name, model] : settings.models) {
    ModelSettings own{.load = options.service.load, .keep_alive = model.keep_alive};
    if (model.context) own.load.executor.context = *model.context;
    if (model.parallel) set_parallel(own.load.executor, *model.parallel);
    if (model.cache_tokens) own.load.executor.cache_tokens = *model.cache_tokens;
    options.service.model_settings.emplace(name, std::move(own));
    if (!model.path.empty()) options.service.configured.emplace(name, model.path);
  }
  return options;
}

}  // namespace quarrel

// Every status that the server's sources send is described: they are read for it, so that no list is forgotten.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>

#include "server/openapi.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// As errors and refusals are written: `refuse(400, …`, `ApiError error(429, …`, `return {503, "…`.
std::set<std::string> sent_by(const fs::path& path) {
  static const std::regex kSent(
      R"((?:refuse\(|ApiError(?: \w+)?[({]|\{|\(\{)\s*([45]\d\d),\s*(?:"|kInvalid|std::|fmt::))");
  std::set<std::string> statuses;
  const std::string text = text_of(path);
  for (std::sregex_iterator found(text.begin(), text.end(), kSent), end; found != end; ++found) {
    statuses.insert((*found)[1]);
  }
  return statuses;
}

// By what they are sent: the name of a folder or of a file.
std::map<std::string, std::set<std::string>> sent_statuses() {
  std::map<std::string, std::set<std::string>> sent;
  for (const auto& each : fs::recursive_directory_iterator(QUARREL_SERVER_SOURCES)) {
    const fs::path& path = each.path();
    // How a program asks another server, and the meanings themselves.
    if (path.extension() != ".cpp" || path.stem() == "client" || path.stem() == "openapi") continue;
    const bool core = path.parent_path().filename() == "http";
    sent[core ? "http" : path.stem().string()].merge(sent_by(path));
  }
  return sent;
}

// Of each operation, "GET /v1/models": what it is described to answer.
std::map<std::string, std::set<std::string>> described_statuses() {
  std::map<std::string, std::set<std::string>> described;
  const Json document = openapi_document(routes());
  for (const auto& [path, methods] : document["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      std::set<std::string>& statuses = described[method + " " + path];
      for (const auto& answer : operation["responses"].items()) statuses.insert(answer.key());
    }
  }
  return described;
}

TEST(OpenApiStatuses, AreThoseThatAreSent) {
  const auto described = described_statuses();
  std::set<std::string> anywhere;
  for (const auto& [operation, statuses] : described) anywhere.insert(statuses.begin(), statuses.end());
  std::size_t sources = 0;
  for (const auto& [source, statuses] : sent_statuses()) {
    if (!statuses.empty()) ++sources;
    for (const std::string& status : statuses) EXPECT_TRUE(anywhere.contains(status)) << source << " sends " << status;
  }
  EXPECT_GE(sources, 10u) << "errors are written in another way now: what finds them has to learn it";
}

// What refuses a request before its handler does so on every path.
TEST(OpenApiStatuses, OfTheWayInAreThoseOfEveryOperation) {
  auto sent = sent_statuses();
  std::set<std::string> on_every_path = sent["http"];
  on_every_path.merge(sent["admission"]);
  for (const char* status : {"400", "403", "405", "408", "431", "505"})
    EXPECT_TRUE(on_every_path.contains(status)) << status;
  const auto described = described_statuses();
  on_every_path.erase("404");  // of a path that is none of them
  for (const Route& row : routes()) {
    std::string operation = std::string(row.method) + " " + std::string(row.path);
    for (char& c : operation) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    for (const std::string& status : on_every_path) {
      const bool of_a_body = status == "413" || status == "415";
      const bool of_a_key = status == "401" || status == "429";
      const bool of_the_handshake = status == "426";
      if ((of_a_body && row.body_bytes == 0) || (of_a_key && row.access == Access::everybody)) continue;
      if (of_the_handshake && row.path != "/ws") continue;
      EXPECT_TRUE(described.at(operation).contains(status)) << operation << " " << status;
    }
  }
}

}  // namespace
}  // namespace quarrel

// Pulling from a registry, with a made-up one behind the transport.
#include <gtest/gtest.h>

#include <map>

#include "base/sha256.h"
#include "gguf/writer.h"
#include "store/model_description.h"
#include "store/own_store.h"
#include "store/registry_pull.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempDir;
using test::write_file;

// Documents by path; a download can be made to break, to ignore where it should begin, or to send something else.
class MadeUpRegistry : public RegistryTransport {
 public:
  unsigned get(const std::string& path, std::uint64_t offset, const Take& take) override {
    requests.emplace_back(path, offset);
    const auto found = documents.find(path);
    if (found == documents.end()) return 404;
    if (ignores_offset) offset = 0;
    const unsigned status = offset > 0 ? 206 : 200;
    std::string_view rest = std::string_view(found->second).substr(offset);
    constexpr std::size_t kPiece = 1000;
    while (!rest.empty()) {
      if (path.find("/blobs/") != std::string::npos && breaks_left > 0 && rest.size() < found->second.size() - offset) {
        --breaks_left;
        fail(ErrorKind::io, "the line broke");
      }
      const std::string_view piece = rest.substr(0, kPiece);
      take(status, std::as_bytes(std::span(piece)));
      rest.remove_prefix(piece.size());
    }
    return status;
  }

  std::map<std::string, std::string> documents;
  std::vector<std::pair<std::string, std::uint64_t>> requests;
  int breaks_left = 0;
  bool ignores_offset = false;
};

std::string toy_weights(float value = 0.5F) {
  GgufWriter writer;
  writer.put_string("general.architecture", "toy");
  writer.add_tensor("w", {1000, 2}, std::vector<float>(2000, value));
  return std::string(test::as_text(writer.to_bytes()));
}

class RegistryPulls : public ::testing::Test {
 protected:
  static std::string layer(const std::string& kind, const std::string& digest, std::size_t size) {
    return R"({"mediaType":"application/vnd.ollama.image.)" + kind + R"(","digest":")" + digest + R"(","size":)" +
           std::to_string(size) + "}";
  }
  std::string blob(const std::string& kind, const std::string& bytes) {
    const std::string digest = "sha256:" + sha256(bytes);
    registry_.documents["/v2/library/toy/blobs/" + digest] = bytes;
    return layer(kind, digest, bytes.size());
  }
  void put_manifest(const std::string& layers, const std::string& tag = "latest") {
    registry_.documents["/v2/library/toy/manifests/" + tag] = R"({"schemaVersion":2,"layers":[)" + layers + "]}";
  }
  void pull(const std::string& text = "toy") {
    const auto name = OllamaName::parse(text);
    options_.stored_name = pulled_name(*name);
    options_.pause = std::chrono::milliseconds(0);
    options_.stop = stop_.get_token();
    options_.progress = [this](const RegistryProgress& progress) {
      if (statuses_.empty() || statuses_.back() != progress.status) statuses_.emplace_back(progress.status);
      EXPECT_LE(progress.completed, progress.total);
      if (on_progress_) on_progress_(progress);
    };
    pull_from_registry(*name, store_, registry_, options_);
  }
  std::size_t files() const {
    std::error_code fault;
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_ / "q", fault), {}));
  }

  TempDir folder_;
  ModelStore store_{{folder_ / "q", {}}};
  MadeUpRegistry registry_;
  RegistryPullOptions options_;
  std::stop_source stop_;
  std::vector<std::string> statuses_;
  std::function<void(const RegistryProgress&)> on_progress_;
  std::string weights_ = toy_weights();
};

TEST_F(RegistryPulls, WeightsAndSettingsComeIntoTheStore) {
  put_manifest(blob("model", weights_) + "," + blob("system", "Be brief.") + "," +
               blob("params", R"({"temperature":0.5})") + "," + blob("template", "{{ .Prompt }}") + "," +
               blob("license", "MIT") + "," + R"({"mediaType":"text/other"})");
  pull();
  const ResolvedModel model = store_.resolve_name("toy");
  EXPECT_EQ(test::read_file(model.path), weights_);
  EXPECT_EQ(model.system, "Be brief.");
  EXPECT_EQ(model.params, R"({"temperature":0.5})");
  EXPECT_EQ(model.license, "MIT");
  EXPECT_FALSE(model.template_text) << "Go's templates are of no use here";
  EXPECT_EQ(known_digest(model.path), sha256(weights_));
  EXPECT_EQ(files(), 3U);
  EXPECT_EQ(statuses_.front(), "pulling manifest");
  EXPECT_EQ(statuses_[statuses_.size() - 2], "verifying sha256 digest");
  EXPECT_EQ(statuses_.back(), "writing manifest");
}

TEST_F(RegistryPulls, WeightsThatAreThereAreNotFetchedAgain) {
  put_manifest(blob("model", weights_));
  pull();
  put_manifest(blob("model", weights_) + "," + blob("system", "Arr"), "pirate");
  registry_.requests.clear();
  pull("toy:pirate");
  EXPECT_EQ(registry_.requests.size(), 2U) << "the manifest and the system prompt";
  EXPECT_EQ(store_.resolve_name("toy:pirate").system, "Arr");
  EXPECT_FALSE(store_.resolve_name("toy").system);
  EXPECT_TRUE(fs::equivalent(store_.resolve_name("toy").path, store_.resolve_name("toy:pirate").path));
}

TEST_F(RegistryPulls, ANewerOneTakesThePlaceOfTheOlder) {
  put_manifest(blob("model", weights_) + "," + blob("system", "Old"));
  pull();
  const std::string newer = toy_weights(0.75F);
  put_manifest(blob("model", newer));
  pull();
  EXPECT_EQ(test::read_file(store_.resolve_name("toy").path), newer);
  EXPECT_FALSE(store_.resolve_name("toy").system);
  EXPECT_EQ(known_digest(store_.resolve_name("toy").path), sha256(newer));
}

TEST_F(RegistryPulls, ABrokenDownloadGoesOnWhereItBroke) {
  put_manifest(blob("model", weights_));
  registry_.breaks_left = 3;
  pull();
  EXPECT_EQ(test::read_file(store_.resolve_name("toy").path), weights_);
  EXPECT_EQ(registry_.requests.back().second, 3000U);

  fs::remove_all(folder_ / "q");
  registry_.breaks_left = 3;
  registry_.ignores_offset = true;
  pull();
  EXPECT_EQ(test::read_file(store_.resolve_name("toy").path), weights_) << "and begins again where it must";
}

TEST_F(RegistryPulls, WhatACancelledPullFetchedIsKept) {
  put_manifest(blob("model", weights_));
  on_progress_ = [this](const RegistryProgress& progress) {
    if (progress.completed >= 2000) stop_.request_stop();
  };
  expect_error(ErrorKind::cancelled, {}, [&] { pull(); });
  EXPECT_EQ(files(), 1U);
  stop_ = {};
  on_progress_ = {};
  registry_.requests.clear();
  pull();
  EXPECT_EQ(registry_.requests.back().second, 2000U);
  EXPECT_EQ(test::read_file(store_.resolve_name("toy").path), weights_);
}

TEST_F(RegistryPulls, OtherBytesThanTheDigestSaysAreRefusedAndRemoved) {
  const std::string model = blob("model", weights_);
  put_manifest(model);
  for (auto& [path, bytes] : registry_.documents) {
    if (path.find("/blobs/") != std::string::npos) bytes[100] ^= 1;
  }
  expect_error(ErrorKind::bad_file, {"SHA-256"}, [&] { pull(); });
  EXPECT_EQ(files(), 0U);
  for (auto& [path, bytes] : registry_.documents) {
    if (path.find("/blobs/") != std::string::npos) bytes += "more";
  }
  expect_error(ErrorKind::bad_file, {"more than"}, [&] { pull(); });
  EXPECT_EQ(files(), 0U);
}

TEST_F(RegistryPulls, AModelThatIsNoGgufFileIsRefused) {
  put_manifest(blob("model", "not a model"));
  expect_error(ErrorKind::bad_file, {"GGUF"}, [&] { pull(); });
  EXPECT_EQ(files(), 0U);
}

TEST_F(RegistryPulls, ManifestsAreChecked) {
  const std::string digest = "sha256:" + sha256(weights_);
  for (const std::string& layers :
       {layer("model", "sha256:../../../../etc/passwd", 5), layer("model", "sha256:" + std::string(63, 'a'), 5),
        layer("model", "md5:" + std::string(64, 'a'), 5), std::string("{}"), std::string("1"),
        std::string(R"({"mediaType":"application/vnd.ollama.image.model","digest":")" + digest + "\"}"),
        layer("system", digest, std::size_t{5} << 20), layer("model", digest, std::size_t{1} << 50)}) {
    put_manifest(layers);
    expect_error(ErrorKind::bad_file, {"manifest"}, [&] { pull(); });
  }
  for (const char* text : {"", "[", "[]", "{}", R"({"layers":1})"}) {
    registry_.documents["/v2/library/toy/manifests/latest"] = text;
    expect_error(ErrorKind::bad_file, {"manifest"}, [&] { pull(); });
  }
  registry_.documents["/v2/library/toy/manifests/latest"] = std::string((4u << 20) + 1, ' ');
  expect_error(ErrorKind::bad_file, {"more than"}, [&] { pull(); });
  put_manifest("");
  expect_error(ErrorKind::unsupported, {"no GGUF"}, [&] { pull(); });
  put_manifest(layer("adapter", digest, 1));
  expect_error(ErrorKind::unsupported, {"adapter"}, [&] { pull(); });
  expect_error(ErrorKind::not_found, {"does not have"}, [&] { pull("toy:other"); });
  expect_error(ErrorKind::usage, {"default"}, [&] { pull("default"); });
  EXPECT_EQ(files(), 0U);
}

TEST(PulledNames, AreAsShortAsTheyMayBe) {
  for (const auto& [name, expected] :
       std::map<std::string, std::string>{{"toy", "toy"},
                                          {"toy:latest", "toy"},
                                          {"library/toy:1b", "toy:1b"},
                                          {"me/toy", "me/toy"},
                                          {"h.example/me/toy:x", "h.example/me/toy:x"},
                                          {"h.example/library/toy", "h.example/library/toy"}}) {
    EXPECT_EQ(pulled_name(*OllamaName::parse(name)), expected);
  }
}

}  // namespace
}  // namespace quarrel

// A made-up store of Quarrel's and one of Ollama's, with toy models in them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "gguf/writer.h"
#include "store/own_store.h"
#include "store/store.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel::test {

inline constexpr std::string_view kDefaultFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

inline std::string toy_model() {
  GgufWriter writer;
  writer.put_string("general.architecture", "toy");
  writer.add_tensor("w", {1000, 2}, std::vector<float>(2000, 0.5F));
  return std::string(as_text(writer.to_bytes()));
}

// Part `number`, from 1 on, of a model in several files.
inline std::string toy_part(std::uint32_t number, std::uint32_t count) {
  GgufWriter writer;
  writer.put_string("general.architecture", "toy");
  writer.put_u32("split.no", number - 1);
  writer.put_u32("split.count", count);
  writer.add_tensor("w" + std::to_string(number), {1000}, std::vector<float>(1000, 0.5F));
  return std::string(as_text(writer.to_bytes()));
}

class StoreFixture : public ::testing::Test {
 protected:
  std::string blob(const std::string& text) {
    const std::string digest = sha256(text);
    write_file(folder_ / "ollama/blobs" / ("sha256-" + digest), text);
    return "sha256:" + digest;
  }
  static std::string layer(const std::string& kind, const std::string& digest, std::size_t size) {
    return R"({"mediaType":"application/vnd.ollama.image.)" + kind + R"(","digest":")" + digest + R"(","size":)" +
           std::to_string(size) + "}";
  }
  static std::string manifest(const std::string& config_digest, const std::string& layers) {
    return R"({"schemaVersion":2,"config":{"digest":")" + config_digest + R"("},"layers":[)" + layers + "]}";
  }
  void put_manifest(const std::string& path, const std::string& text) {
    write_file(folder_ / "ollama/manifests" / path, text);
  }
  std::string config(const std::string& text = R"({"model_format":"gguf","model_type":"2K","file_type":"F32"})") {
    return blob(text);
  }
  std::string model_layer() { return layer("model", blob(model_), model_.size()); }
  void put_model(const std::string& path) { put_manifest(path, manifest(config(), model_layer())); }

  void put_parts(const std::string& name, std::uint32_t count) {
    for (std::uint32_t number = 1; number <= count; ++number) {
      write_file(folder_ / (name + file_ending(number, count)), toy_part(number, count));
    }
  }

  ModelStore store() const { return ModelStore({folder_ / "quarrel", {folder_ / "ollama"}}); }
  ResolvedModel resolve(const std::string& name) const { return store().resolve(name); }
  std::map<std::string, ListedModel> listed() const {
    std::map<std::string, ListedModel> result;
    for (ListedModel& model : store().list()) result[model.name] = model;
    return result;
  }

  TempDir folder_;
  std::string model_ = toy_model();
};

}  // namespace quarrel::test

// One model as different converters write it: the same logits, whatever the names, the shapes and what is joined. And
// one wrong shape each, whose error says what was expected.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "models/runner.h"
#include "support/golden.h"
#include "support/rewritten_toy.h"
#include "support/temp_dir.h"

namespace quarrel::test {
namespace {

using Shape = std::vector<std::uint64_t>;

void expect_equal_logits(const std::filesystem::path& file, const std::filesystem::path& other, double bound = 0.0) {
  const auto tokens = golden_tokens();
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    const auto expected = logits_of(file, *named.device, tokens);
    const auto logits = logits_of(other, *named.device, tokens);
    if (bound == 0.0) {
      EXPECT_EQ(logits, expected);
    } else {
      EXPECT_LE(nmse(logits, expected), bound);
    }
  }
}

std::string refusal_of(const std::filesystem::path& file) {
  try {
    logits_of(file, *all_devices().front().device, golden_tokens());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_file) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

void expect_words(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
}

std::vector<std::byte> slice(const std::vector<std::byte>& bytes, std::size_t first, std::size_t count) {
  return {bytes.begin() + static_cast<std::ptrdiff_t>(first),
          bytes.begin() + static_cast<std::ptrdiff_t>(first + count)};
}

// "blk.2.ffn_up_exps.weight" to "blk.2." and "ffn_up_exps.weight".
std::pair<std::string, std::string> cut_prefix(const std::string& name) {
  if (!name.starts_with("blk.")) return {"", name};
  const std::size_t end = name.find('.', 4) + 1;
  return {name.substr(0, end), name.substr(end)};
}

// ---- One tensor an expert ----

TEST(OldExperts, OneTensorAnExpertGivesTheSameLogits) {
  const TempDir folder;
  for (const QuantType type : {QuantType::f32, QuantType::q8_0}) {
    const ToyOptions options{.type = type};
    ToyRewriter rewriter("mixtral", options);
    rewriter.change = [](const ToyTensor& tensor, ToyRewriter& out) {
      const std::size_t at = tensor.name.find("_exps.weight");
      if (at == std::string::npos) return out.keep(tensor);
      const std::size_t bytes = tensor.bytes.size() / tensor.shape[2];
      // Last expert first: where they lie says nothing.
      for (std::size_t expert = tensor.shape[2]; expert-- > 0;) {
        out.add_bytes(tensor.name.substr(0, at) + "." + std::to_string(expert) + ".weight", tensor.type,
                      {tensor.shape[0], tensor.shape[1]}, slice(tensor.bytes, expert * bytes, bytes));
      }
    };
    expect_equal_logits(write_toy("mixtral", folder.path(), options), rewriter.write(folder / "old.gguf"));
  }
}

TEST(OldExperts, AMissingOneIsNamed) {
  const TempDir folder;
  ToyRewriter rewriter("mixtral", {});
  rewriter.change = [](const ToyTensor& tensor, ToyRewriter& out) {
    const std::size_t at = tensor.name.find("_exps.weight");
    if (at == std::string::npos) return out.keep(tensor);
    const std::size_t bytes = tensor.bytes.size() / tensor.shape[2];
    for (std::size_t expert = 0; expert < 7; ++expert) {
      out.add_bytes(tensor.name.substr(0, at) + "." + std::to_string(expert) + ".weight", tensor.type,
                    {tensor.shape[0], tensor.shape[1]}, slice(tensor.bytes, expert * bytes, bytes));
    }
  };
  expect_words(refusal_of(rewriter.write(folder / "seven.gguf")), {"blk.0.ffn_", ".7.weight", "[128, 256]"});
}

// ---- gpt-oss as Ollama's first converter wrote it ----

// Rows of two tensors in turn.
std::vector<std::byte> alternate(const ToyTensor& gate, const ToyTensor& up, std::size_t row) {
  std::vector<std::byte> joined;
  for (std::size_t at = 0; at < gate.bytes.size(); at += row) {
    for (const ToyTensor* tensor : {&gate, &up}) {
      joined.insert(joined.end(), tensor->bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    tensor->bytes.begin() + static_cast<std::ptrdiff_t>(at + row));
    }
  }
  return joined;
}

// Neighbours in one byte instead of weights 16 apart.
void pair_nibbles(std::vector<std::byte>& blocks) {
  for (std::size_t block = 0; block < blocks.size(); block += 17) {
    const std::vector<std::byte> halves = slice(blocks, block + 1, 16);
    const auto nibble = [&](std::size_t weight) {
      return weight < 16 ? halves[weight] & std::byte{15} : halves[weight - 16] >> 4;
    };
    for (std::size_t j = 0; j < 16; ++j) blocks[block + 1 + j] = nibble(2 * j) | nibble(2 * j + 1) << 4;
  }
}

void add_paired(ToyRewriter& out, const std::string& name, QuantType type, Shape shape, std::vector<std::byte> bytes) {
  if (type == QuantType::mxfp4) {
    pair_nibbles(bytes);
    type = QuantType::mxfp4_pairs;
  }
  out.add_bytes(name, type, std::move(shape), std::move(bytes));
}

void write_in_ollamas_way(const ToyTensor& tensor, ToyRewriter& out) {
  const auto [prefix, name] = cut_prefix(tensor.name);
  const auto sister = [&, &prefix = prefix](const char* other) -> const ToyTensor& {
    return out.tensor(prefix + other);
  };
  if (name == "attn_q.weight" || name == "attn_q.bias") {
    const std::string suffix = name.substr(6);
    std::vector<std::byte> joined = tensor.bytes;
    std::uint64_t rows = tensor.shape.back();
    for (const char* other : {"attn_k", "attn_v"}) {
      const ToyTensor& more = sister((other + suffix).c_str());
      joined.insert(joined.end(), more.bytes.begin(), more.bytes.end());
      rows += more.shape.back();
    }
    Shape shape = tensor.shape;
    shape.back() = rows;
    out.add_bytes(prefix + "attn_qkv" + suffix, tensor.type, shape, joined);
  } else if (name.starts_with("attn_k.") || name.starts_with("attn_v.") || name.starts_with("ffn_up_exps.")) {
    // In the joined ones.
  } else if (name.starts_with("attn_output.")) {
    out.keep(tensor, prefix + "attn_out" + name.substr(11));
  } else if (name == "attn_sinks.weight") {
    out.keep(tensor, prefix + "attn_sinks");
  } else if (name == "post_attention_norm.weight") {
    out.keep(tensor, prefix + "ffn_norm.weight");
  } else if (name == "ffn_gate_exps.weight") {
    const std::size_t row = row_bytes(type_info(tensor.type), tensor.shape[0]);
    add_paired(out, prefix + "ffn_gate_up_exps.weight", tensor.type,
               {tensor.shape[0], 2 * tensor.shape[1], tensor.shape[2]},
               alternate(tensor, sister("ffn_up_exps.weight"), row));
  } else if (name == "ffn_gate_exps.bias") {
    out.add_bytes(prefix + "ffn_gate_up_exps.bias", tensor.type, {2 * tensor.shape[0], tensor.shape[1]},
                  alternate(tensor, sister("ffn_up_exps.bias"), sizeof(float)));
  } else {
    add_paired(out, tensor.name, tensor.type, tensor.shape, tensor.bytes);
  }
}

ToyRewriter ollamas_gpt_oss(const ToyOptions& options) {
  ToyRewriter rewriter("gpt-oss", options);
  rewriter.change_string = [](std::string_view key, std::string_view value) {
    return std::string(key == "general.architecture" ? "gptoss" : value);
  };
  rewriter.rename_key = [](std::string_view key) -> std::string {
    if (!key.starts_with("gpt-oss.")) return std::string(key);
    if (key == "gpt-oss.rope.scaling.type" || key == "gpt-oss.expert_feed_forward_length") return "";
    return "gptoss" + std::string(key.substr(7));
  };
  rewriter.change = write_in_ollamas_way;
  return rewriter;
}

TEST(OllamasGptOss, GivesTheSameLogits) {
  const TempDir folder;
  for (const QuantType type : {QuantType::f32, QuantType::mxfp4}) {
    SCOPED_TRACE(type_info(type).name);
    const ToyOptions options{.type = type};
    ToyRewriter rewriter = ollamas_gpt_oss(options);
    expect_equal_logits(write_toy("gpt-oss", folder.path(), options), rewriter.write(folder / "ollama.gguf"));
  }
}

TEST(OllamasGptOss, AWrongShapeSaysWhatWasExpected) {
  const TempDir folder;
  ToyRewriter rewriter = ollamas_gpt_oss({});
  rewriter.change = [](const ToyTensor& tensor, ToyRewriter& out) {
    if (tensor.name != "blk.1.ffn_gate_exps.weight") return write_in_ollamas_way(tensor, out);
    out.keep(tensor, "blk.1.ffn_gate_up_exps.weight");
  };
  expect_words(refusal_of(rewriter.write(folder / "wrong.gguf")),
               {"blk.1.ffn_gate_up_exps.weight", "[128, 128, 8]", "[128, 256, 8]"});
}

// ---- Recurrent layers ----

struct MambaVariant {
  const char* name;
  const char* toy;
  double bound;  // 0: the same bits
  std::function<void(const ToyTensor&, ToyRewriter&)> change;
};

std::vector<float> logarithm(const ToyTensor& tensor) {
  std::vector<float> values;
  for (const float value : tensor.values) values.push_back(std::log(-value));
  return values;
}

// Cuts the rows of the input projection into tensors of their own.
void split_input(const ToyTensor& tensor, ToyRewriter& out, const std::string& prefix,
                 const std::vector<std::pair<const char*, std::size_t>>& parts) {
  const std::size_t row = tensor.bytes.size() / tensor.shape[1];
  std::size_t at = 0;
  for (const auto& [suffix, rows] : parts) {
    out.add_bytes(prefix + "ssm_in_" + suffix + ".weight", tensor.type, {tensor.shape[0], rows},
                  slice(tensor.bytes, at * row, rows * row));
    at += rows;
  }
  EXPECT_EQ(at, tensor.shape[1]);
}

std::vector<MambaVariant> mamba_variants() {
  const auto only = [](const char* wanted, auto&& body) {
    return [wanted, body](const ToyTensor& tensor, ToyRewriter& out) {
      const auto [prefix, name] = cut_prefix(tensor.name);
      if (name != wanted) return out.keep(tensor);
      body(tensor, out, prefix);
    };
  };
  using Out = ToyRewriter;
  using Text = const std::string&;
  const auto log_a = only("ssm_a", [](const ToyTensor& t, Out& out, Text) { out.add(t.name, t.shape, logarithm(t)); });
  return {
      {"log", "mamba2", 1e-11, log_a},
      {"log1", "mamba", 1e-11, log_a},
      {"one_dimension", "mamba2", 0,
       [](const ToyTensor& t, Out& out) {
         const auto [prefix, name] = cut_prefix(t.name);
         const bool flat = name == "ssm_a" || name == "ssm_d" || name == "ssm_norm.weight";
         out.add_bytes(t.name, t.type, flat ? Shape{t.values.size()} : t.shape, t.bytes);
       }},
      {"three_dimensions", "mamba2", 0,
       only("ssm_conv1d.weight", [](const ToyTensor& t, Out& out,
                                    Text) { out.add_bytes(t.name, t.type, {t.shape[0], 1, t.shape[1]}, t.bytes); })},
      {"with_weight_suffix", "mamba2", 0,
       [](const ToyTensor& t, Out& out) {
         const auto [prefix, name] = cut_prefix(t.name);
         out.keep(t, name == "ssm_a" || name == "ssm_d" ? t.name + ".weight"
                     : name == "ssm_dt.bias"            ? prefix + "ssm_dt_bias"
                                                        : t.name);
       }},
      {"split", "mamba2", 0,
       only("ssm_in.weight",
            [](const ToyTensor& t, Out& out, Text prefix) {
              split_input(t, out, prefix, {{"z", 256}, {"x", 256}, {"b", 64}, {"c", 64}, {"dt", 8}});
            })},
      {"half_split", "mamba2", 0,
       only("ssm_in.weight", [](const ToyTensor& t, Out& out,
                                Text prefix) { split_input(t, out, prefix, {{"z", 256}, {"xbc", 384}, {"dt", 8}}); })},
      {"split1", "mamba", 0,
       only("ssm_in.weight",
            [](const ToyTensor& t, Out& out, Text prefix) { split_input(t, out, prefix, {{"x", 256}, {"z", 256}}); })},
  };
}

TEST(MambaFiles, VariantsGiveTheSameLogits) {
  const TempDir folder;
  for (const MambaVariant& variant : mamba_variants()) {
    SCOPED_TRACE(variant.name);
    ToyRewriter rewriter(variant.toy, {});
    rewriter.change = variant.change;
    expect_equal_logits(write_toy(variant.toy, folder.path()), rewriter.write(folder / "variant.gguf"), variant.bound);
  }
}

TEST(MambaFiles, AWrongPartOfASplitProjectionIsNamed) {
  const TempDir folder;
  ToyRewriter rewriter("mamba2", {});
  rewriter.change = [](const ToyTensor& tensor, ToyRewriter& out) {
    const auto [prefix, name] = cut_prefix(tensor.name);
    if (name != "ssm_in.weight") return out.keep(tensor);
    split_input(tensor, out, prefix, {{"z", 256}, {"x", 256}, {"b", 60}, {"c", 68}, {"dt", 8}});
  };
  expect_words(refusal_of(rewriter.write(folder / "wrong.gguf")), {"blk.0.ssm_in_b.weight", "[128, 60]", "[128, 64]"});
}

TEST(MambaFiles, AMissingNormIsLeftOut) {
  const TempDir folder;
  ToyRewriter without("mamba2", {});
  without.change = [](const ToyTensor& tensor, ToyRewriter& out) {
    if (tensor.name.find("ssm_norm") == std::string::npos) out.keep(tensor);
  };
  const auto file = without.write(folder / "without.gguf");
  const auto tokens = golden_tokens();
  const auto devices = all_devices();
  const auto normed = logits_of(write_toy("mamba2", folder.path()), *devices.front().device, tokens);
  const auto expected = logits_of(file, *devices.front().device, tokens);
  EXPECT_GE(nmse(expected, normed), 1e-3);
  for (const NamedDevice& named : devices) {
    SCOPED_TRACE(named.name);
    EXPECT_LE(nmse(logits_of(file, *named.device, tokens), expected), 1e-9);
  }
}

TEST(MambaFiles, WrongShapesSayWhatWasExpected) {
  struct Wrong {
    const char* toy;
    const char* tensor;
    Shape shape;
    std::initializer_list<const char*> words;
  };
  const TempDir folder;
  for (const Wrong& wrong : {
           Wrong{"mamba2", "blk.0.ssm_a", {4}, {"blk.0.ssm_a", "[4]", "[8]"}},
           Wrong{"mamba2", "blk.1.ssm_d", {2, 2}, {"blk.1.ssm_d", "[2, 2]", "[8]"}},
           Wrong{"mamba2", "blk.1.ssm_in.weight", {128, 640}, {"blk.1.ssm_in.weight", "[128, 640]", "[128, 648]"}},
           Wrong{"mamba2", "blk.0.ssm_conv1d.weight", {3, 384}, {"ssm_conv1d.weight", "[3, 384]", "[4, 384]"}},
           Wrong{"mamba2", "blk.2.ssm_norm.weight", {64, 4}, {"ssm_norm.weight", "[64, 4]", "[128, 2] or [256]"}},
           Wrong{"mamba2", "blk.0.ssm_dt.bias", {9}, {"ssm_dt.bias", "[9]", "[8]"}},
           Wrong{"mamba", "blk.0.ssm_a", {256, 16}, {"blk.0.ssm_a", "[256, 16]", "[16, 256]"}},
           Wrong{"mamba", "blk.0.ssm_x.weight", {256, 39}, {"ssm_x.weight", "[256, 39]", "[256, 40]"}},
       }) {
    SCOPED_TRACE(wrong.tensor);
    ToyRewriter rewriter(wrong.toy, {});
    rewriter.change = [&](const ToyTensor& tensor, ToyRewriter& out) {
      if (tensor.name != wrong.tensor) return out.keep(tensor);
      std::uint64_t count = 1;
      for (const std::uint64_t size : wrong.shape) count *= size;
      out.add(tensor.name, wrong.shape, std::vector<float>(count, -1.0f));
    };
    expect_words(refusal_of(rewriter.write(folder / "wrong.gguf")), wrong.words);
  }
}

}  // namespace
}  // namespace quarrel::test

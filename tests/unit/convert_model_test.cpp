// Whole folders: a toy is stored as the other library would, converted, and must come out as it was.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "convert/convert.h"
#include "convert/safetensors.h"
#include "model/architectures.h"
#include "model/rope.h"
#include "support/temp_dir.h"
#include "unit/convert_support.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::family_of;
using test::Json;
using test::numbered;
using test::SafetensorsMaker;
using test::TempDir;
using test::values_of;
using test::write_file;
using test::write_json;

constexpr std::uint32_t kLayers = 2;
constexpr std::uint32_t kHead = 16;

Json decoder_config(const char* class_name) {
  return {{"architectures", {class_name}},
          {"hidden_size", 64},
          {"num_hidden_layers", kLayers},
          {"intermediate_size", 96},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", kHead},
          {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"hidden_act", "silu"},
          {"sliding_window", nullptr},
          {"tie_word_embeddings", false}};
}

Json encoder_config() {
  return {{"architectures", {"BertModel"}}, {"hidden_size", 64},
          {"num_hidden_layers", kLayers},   {"intermediate_size", 96},
          {"num_attention_heads", 4},       {"max_position_embeddings", 512},
          {"layer_norm_eps", 1e-5},         {"hidden_act", "gelu"},
          {"type_vocab_size", 2},           {"position_embedding_type", "absolute"}};
}

// Enough of a tokenizer for these models; what it says is another test's subject.
constexpr const char* kWordList = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n##s\n";

class Converting : public ::testing::Test {
 protected:
  // A toy's tensors and a config.json, in `folder_`/model.
  void store(const char* toy, const char* class_name, const Json& config, QuantType type = QuantType::f32) {
    bytes_ = test::make_toy(toy, {.embedding = 64,
                                  .layers = kLayers,
                                  .feed_forward = 96,
                                  .heads = 4,
                                  .kv_heads = std::string_view(toy).ends_with("bert") ? 4U : 2U,
                                  .head = kHead,
                                  .rotary = kHead,
                                  .vocabulary = 64});
    toy_ = GgufFile::view(bytes_, "toy");
    maker_ = test::toy_as_safetensors(*toy_, family_of(class_name), kLayers, kHead, type);
    write_file(model_ / "model.safetensors", maker_.bytes());
    write_json(model_ / "config.json", config);
    write_file(model_ / "vocab.txt", kWordList);
  }

  ConvertedModel run(const ConvertOptions& options = {}) { return convert_folder(model_, target_, options, log_); }

  void expect_same_tensors(const GgufFile& made) const {
    EXPECT_EQ(made.tensors().size(), toy_->tensors().size());
    for (const GgufTensor& expected : toy_->tensors()) {
      const GgufTensor* tensor = made.find_tensor(expected.name);
      ASSERT_NE(tensor, nullptr) << expected.name;
      EXPECT_EQ(tensor->shape, expected.shape) << expected.name;
      EXPECT_EQ(values_of(made, *tensor), values_of(*toy_, expected)) << expected.name;
    }
  }

  std::size_t files_beside_target() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }

  TempDir folder_;
  fs::path model_ = folder_ / "tiny";
  fs::path target_ = folder_ / "tiny.gguf";
  std::vector<std::byte> bytes_;
  std::optional<GgufFile> toy_;
  SafetensorsMaker maker_;
  MemoryLog log_;
};

TEST_F(Converting, DecodersComeOutAsTheyWere) {
  struct Case {
    const char* toy;
    const char* class_name;
  };
  for (const Case& one : {Case{"llama", "LlamaForCausalLM"}, Case{"llama", "MistralForCausalLM"},
                          Case{"qwen2", "Qwen2ForCausalLM"}, Case{"qwen3", "Qwen3ForCausalLM"}}) {
    SCOPED_TRACE(one.class_name);
    store(one.toy, one.class_name, decoder_config(one.class_name));
    const ConvertedModel result = run({.overwrite = true});
    EXPECT_EQ(result.architecture, one.toy);
    EXPECT_EQ(result.type, "F32");
    const GgufFile made = GgufFile::open(target_);
    expect_same_tensors(made);
    const ModelSpec spec = read_spec(made);
    EXPECT_EQ(spec.name, "tiny");
    EXPECT_EQ(spec.width, 64);
    EXPECT_EQ(spec.context_length, 512);
    EXPECT_EQ(spec.vocabulary, 64);
    ASSERT_EQ(spec.layers.size(), kLayers);
    const auto& attention = std::get<AttentionSpec>(spec.layers[0].mixer.function);
    EXPECT_EQ(attention.heads, 4);
    EXPECT_EQ(attention.kv_heads, 2);
    EXPECT_EQ(attention.key_dim, 16);
    EXPECT_EQ(attention.rope.base, 10000.0);
    EXPECT_EQ(made.unsigned_integer("general.file_type"), 0U);
  }
  EXPECT_TRUE(log_.lines.empty());
}

// By name, in case the tables of names were wrong in both directions.
TEST_F(Converting, KnowsTheNames) {
  store("llama", "LlamaForCausalLM", decoder_config("LlamaForCausalLM"));
  const SafetensorsModel stored = SafetensorsModel::open(model_);
  for (const char* name :
       {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight", "model.layers.1.input_layernorm.weight",
        "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight",
        "model.layers.1.self_attn.v_proj.weight", "model.layers.1.self_attn.o_proj.weight",
        "model.layers.1.post_attention_layernorm.weight", "model.layers.1.mlp.gate_proj.weight",
        "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight"}) {
    EXPECT_NE(stored.find(name).tensor, nullptr) << name;
  }
  EXPECT_EQ(stored.entries().size(), 3U + 9U * kLayers);
}

TEST_F(Converting, EncodersComeOutAsTheyWere) {
  store("bert", "BertModel", encoder_config());
  write_json(model_ / "sentence_bert_config.json", {{"max_seq_length", 100}});
  write_json(model_ / "1_Pooling/config.json", {{"pooling_mode_cls_token", true}, {"pooling_mode_mean_tokens", false}});
  EXPECT_EQ(run().architecture, "bert");
  const GgufFile made = GgufFile::open(target_);
  EXPECT_EQ(made.unsigned_integer("bert.context_length"), 100U);
  EXPECT_EQ(made.unsigned_integer("bert.embedding_length"), 64U);
  EXPECT_EQ(made.unsigned_integer("bert.block_count"), kLayers);
  EXPECT_EQ(made.unsigned_integer("bert.feed_forward_length"), 96U);
  EXPECT_EQ(made.unsigned_integer("bert.attention.head_count"), 4U);
  EXPECT_NEAR(made.number("bert.attention.layer_norm_epsilon").value_or(0), 1e-5, 1e-12);
  EXPECT_EQ(made.boolean("bert.attention.causal"), false);
  EXPECT_EQ(made.unsigned_integer("bert.pooling_type"), 2U);
  EXPECT_EQ(made.unsigned_integer("tokenizer.ggml.token_type_count"), 2U);
  for (const GgufTensor& expected : toy_->tensors()) {
    const GgufTensor* tensor = made.find_tensor(expected.name);
    ASSERT_NE(tensor, nullptr) << expected.name;
    std::vector<float> values = values_of(*toy_, expected);
    if (expected.name == "position_embd.weight") values.resize(std::size_t{100} * 64);
    EXPECT_EQ(values_of(made, *tensor), values) << expected.name;
  }
}

TEST_F(Converting, EncodersThatRotateToo) {
  Json config = {{"architectures", {"NomicBertModel"}},
                 {"n_embd", 64},
                 {"n_layer", kLayers},
                 {"n_inner", 96},
                 {"n_head", 4},
                 {"n_positions", 512},
                 {"max_trained_positions", 128},
                 {"layer_norm_epsilon", 1e-12},
                 {"activation_function", "swiglu"},
                 {"rotary_emb_fraction", 1.0},
                 {"rotary_emb_interleaved", false},
                 {"rotary_emb_base", 1000},
                 {"prenorm", false},
                 {"type_vocab_size", 2}};
  store("nomic-bert", "NomicBertModel", config);
  EXPECT_EQ(run().architecture, "nomic-bert");
  const GgufFile made = GgufFile::open(target_);
  EXPECT_EQ(made.unsigned_integer("nomic-bert.context_length"), 128U);
  EXPECT_EQ(made.number("nomic-bert.rope.freq_base"), 1000.0);
  EXPECT_EQ(made.unsigned_integer("nomic-bert.rope.dimension_count"), kHead);
  EXPECT_EQ(made.boolean("nomic-bert.attention.causal"), false);
  EXPECT_EQ(made.unsigned_integer("nomic-bert.pooling_type"), 1U);
  expect_same_tensors(made);
  config["prenorm"] = true;
  write_json(model_ / "config.json", config);
  expect_error(ErrorKind::unsupported, {"before its layer"}, [&] { run({.overwrite = true}); });
}

TEST_F(Converting, EncodersMayHaveAPrefixAndHeads) {
  store("bert", "BertModel", encoder_config());
  SafetensorsMaker prefixed;
  for (const TensorRule& rule : family_of("BertModel").tensors) {
    const bool layered = rule.ours.find("{}") != std::string_view::npos;
    for (std::uint32_t layer = 0; layer < (layered ? kLayers : 1); ++layer) {
      const GgufTensor& tensor = *toy_->find_tensor(numbered(rule.ours, layer));
      std::vector<std::uint64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.dimensions);
      std::reverse(shape.begin(), shape.end());
      prefixed.add("bert." + numbered(rule.theirs, layer), QuantType::f32, shape, values_of(*toy_, tensor));
    }
  }
  prefixed.add("bert.embeddings.position_ids", "I64", {1}, std::string(8, '\0'));
  prefixed.add("bert.pooler.dense.bias", QuantType::f32, {1}, {0});
  prefixed.add("cls.predictions.bias", QuantType::f32, {1}, {0});
  write_file(model_ / "model.safetensors", prefixed.bytes());
  run();
  const GgufFile made = GgufFile::open(target_);
  EXPECT_EQ(made.unsigned_integer("bert.pooling_type"), 1U) << "the mean where nothing is said";
  expect_same_tensors(made);
}

TEST_F(Converting, WeightsBecomeTheTypeThatWasAsked) {
  store("llama", "LlamaForCausalLM", decoder_config("LlamaForCausalLM"), QuantType::bf16);
  EXPECT_EQ(run().type, "BF16");
  {
    const GgufFile made = GgufFile::open(target_);
    EXPECT_EQ(made.find_tensor("blk.0.attn_q.weight")->type, QuantType::bf16);
    EXPECT_EQ(made.find_tensor("blk.0.attn_norm.weight")->type, QuantType::f32);
  }
  const ConvertOptions options{.name = "another", .type = &find_target_type("q4_k"), .overwrite = true};
  EXPECT_EQ(run(options).type, "Q4_K");
  const GgufFile made = GgufFile::open(target_);
  EXPECT_EQ(made.string("general.name"), "another");
  EXPECT_EQ(made.unsigned_integer("general.file_type"), 14U);
  // Rows of 64 and 96 hold no block of 256.
  EXPECT_EQ(made.find_tensor("blk.0.attn_q.weight")->type, QuantType::q4_1);
  EXPECT_EQ(made.find_tensor("blk.0.ffn_down.weight")->type, QuantType::q4_1);
  EXPECT_EQ(made.find_tensor("output_norm.weight")->type, QuantType::f32);
  ASSERT_EQ(log_.lines.size(), 1U);
  EXPECT_NE(log_.lines[0].second.find("Q4_1 and not Q4_K"), std::string::npos) << log_.lines[0].second;
}

TEST_F(Converting, TiedEmbeddingsAreWrittenOnce) {
  Json config = decoder_config("LlamaForCausalLM");
  config["tie_word_embeddings"] = true;
  store("llama", "LlamaForCausalLM", config);
  run();
  EXPECT_EQ(GgufFile::open(target_).find_tensor("output.weight"), nullptr);
}

TEST_F(Converting, LongContextsByFrequencies) {
  Json config = decoder_config("LlamaForCausalLM");
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 64}};
  config["max_position_embeddings"] = 512;
  store("llama", "LlamaForCausalLM", config);
  run();
  const GgufFile made = GgufFile::open(target_);
  const GgufTensor* tensor = made.find_tensor("rope_freqs.weight");
  ASSERT_NE(tensor, nullptr);
  const std::vector<float> divisors = values_of(made, *tensor);
  ASSERT_EQ(divisors.size(), kHead / 2);
  EXPECT_EQ(divisors.front(), 1.0f) << "a wave of 6 positions is short";
  EXPECT_EQ(divisors.back(), 8.0f) << "a wave of 20000 is long";
  // Pair 2 turns 64 / (2π 10000^(4/16)) = 1.0186 times, just above once: almost the whole factor.
  const double turns = 64.0 / (2 * std::numbers::pi * 10.0);
  EXPECT_NEAR(divisors[2], 1.0 / ((turns - 1) / 3 + (4 - turns) / 3 / 8), 1e-4);
  EXPECT_EQ(std::get<AttentionSpec>(read_spec(made).layers[0].mixer.function).rope.factors_tensor, "rope_freqs.weight");
}

TEST_F(Converting, OtherScalingsAreKeys) {
  Json config = decoder_config("Qwen2ForCausalLM");
  config.erase("rope_theta");
  config["rope_parameters"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}, {"rope_theta", 1e6}};
  store("qwen2", "Qwen2ForCausalLM", config);
  run();
  const ModelSpec spec = read_spec(GgufFile::open(target_));
  const RopeSpec& rope = std::get<AttentionSpec>(spec.layers[0].mixer.function).rope;
  EXPECT_EQ(rope.scaling, RopeScaling::yarn);
  EXPECT_EQ(rope.factor, 4.0);
  EXPECT_EQ(rope.original_context, 128);
  EXPECT_EQ(rope.base, 1e6);
}

TEST_F(Converting, AWindowCutsTheContext) {
  Json config = decoder_config("MistralForCausalLM");
  config["sliding_window"] = 200;
  store("llama", "MistralForCausalLM", config);
  run();
  EXPECT_EQ(read_spec(GgufFile::open(target_)).context_length, 200);
  ASSERT_EQ(log_.lines.size(), 1U);
  config["use_sliding_window"] = false;
  write_json(model_ / "config.json", config);
  run({.overwrite = true});
  EXPECT_EQ(read_spec(GgufFile::open(target_)).context_length, 512);
}

TEST_F(Converting, RefusesWhatItCannotDo) {
  const Json good = decoder_config("LlamaForCausalLM");
  store("llama", "LlamaForCausalLM", good);
  const auto refuse = [&](ErrorKind kind, const std::vector<std::string>& words, const char* field, const Json& value) {
    Json config = good;
    config[field] = value;
    write_json(model_ / "config.json", config);
    SCOPED_TRACE(config.dump());
    expect_error(kind, words, [&] { run(); });
    EXPECT_EQ(files_beside_target(), 1U);
  };
  refuse(ErrorKind::unsupported, {"'FooForCausalLM'", "BertModel", "LlamaForCausalLM", "Qwen3ForCausalLM"},
         "architectures", {"FooForCausalLM"});
  refuse(ErrorKind::bad_file, {"architectures"}, "architectures", nullptr);
  refuse(ErrorKind::bad_file, {"config.json", "hidden_size", "missing"}, "hidden_size", nullptr);
  refuse(ErrorKind::bad_file, {"hidden_size", "whole number"}, "hidden_size", "64");
  refuse(ErrorKind::bad_file, {"hidden_size", "-64"}, "hidden_size", -64);
  refuse(ErrorKind::bad_file, {"num_hidden_layers"}, "num_hidden_layers", 18446744073709551615ULL);
  refuse(ErrorKind::bad_file, {"heads"}, "num_attention_heads", 65);
  refuse(ErrorKind::bad_file, {"odd"}, "head_dim", 15);
  refuse(ErrorKind::bad_file, {"q_proj", "64 rows"}, "num_attention_heads", 8);
  refuse(ErrorKind::bad_file, {"layers.2.input_layernorm"}, "num_hidden_layers", 3);
  refuse(ErrorKind::bad_file, {"layers.1.", "no place"}, "num_hidden_layers", 1);
  refuse(ErrorKind::unsupported, {"hidden_act", "'relu'"}, "hidden_act", "relu");
  refuse(ErrorKind::unsupported, {"rope_type", "'longrope'"}, "rope_scaling", {{"rope_type", "longrope"}});
  refuse(ErrorKind::bad_file, {"low_freq_factor"}, "rope_scaling",
         {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 4.0}, {"high_freq_factor", 4.0}});
  refuse(ErrorKind::unsupported, {"quantised already", "gptq"}, "quantization_config", {{"quant_method", "gptq"}});
  refuse(ErrorKind::unsupported, {"partial_rotary_factor"}, "partial_rotary_factor", 0.5);

  write_json(model_ / "config.json", good);
  maker_.add("model.layers.0.extra.weight", QuantType::f32, {1}, {0});
  write_file(model_ / "model.safetensors", maker_.bytes());
  expect_error(ErrorKind::bad_file, {"extra.weight", "no place"}, [&] { run(); });
}

TEST_F(Converting, RefusesOtherDtypesByName) {
  store("bert", "BertModel", encoder_config());
  SafetensorsMaker maker;
  maker.add("embeddings.word_embeddings.weight", "F64", {1, 1}, std::string(8, '\0'));
  write_file(model_ / "model.safetensors", maker.bytes());
  expect_error(ErrorKind::unsupported, {"word_embeddings", "F64", "BF16"}, [&] { run(); });
  write_json(model_ / "1_Pooling/config.json", {{"pooling_mode_max_tokens", true}});
  expect_error(ErrorKind::unsupported, {"1_Pooling/config.json", "max"}, [&] { run(); });
}

TEST_F(Converting, PlacesAreChecked) {
  expect_error(ErrorKind::not_found, {"tiny"}, [&] { run(); });
  store("llama", "LlamaForCausalLM", decoder_config("LlamaForCausalLM"));
  expect_error(ErrorKind::usage, {"model.safetensors", "not a folder"},
               [&] { convert_folder(model_ / "model.safetensors", target_, {}, log_); });
  expect_error(ErrorKind::usage, {"folder"}, [&] { convert_folder(model_, folder_.path(), {}, log_); });
  write_file(target_, "precious");
  expect_error(ErrorKind::usage, {"--force"}, [&] { run(); });
  EXPECT_EQ(test::read_file(target_), "precious");
  expect_error(ErrorKind::usage, {"would be read"},
               [&] { convert_folder(model_, model_ / "model.safetensors", {.overwrite = true}, log_); });
  expect_error(ErrorKind::io, {"nowhere"}, [&] { convert_folder(model_, folder_ / "nowhere/x.gguf", {}, log_); });
  fs::remove(model_ / "config.json");
  expect_error(ErrorKind::not_found, {"config.json"}, [&] { run({.overwrite = true}); });
}

TEST_F(Converting, CancellingAndBadWeightsLeaveNothing) {
  store("llama", "LlamaForCausalLM", decoder_config("LlamaForCausalLM"));
  std::stop_source stop;
  ConvertOptions options{.type = &find_target_type("Q8_0"), .recode = {.stop = stop.get_token()}};
  options.recode.progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_LE(done, total);
    stop.request_stop();
  };
  expect_error(ErrorKind::cancelled, {"cancelled"}, [&] { run(options); });
  EXPECT_EQ(files_beside_target(), 1U);
  // The values of one tensor become NaN.
  std::string bytes = maker_.bytes();
  const SafetensorsFile file = SafetensorsFile::view(std::as_bytes(std::span(bytes)), "m");
  const SafetensorsTensor& tensor = *file.find("model.layers.0.mlp.up_proj.weight");
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(tensor.offset), tensor.bytes, '\xff');
  write_file(model_ / "model.safetensors", bytes);
  options.recode = {};
  expect_error(ErrorKind::bad_input, {"up_proj", "not a finite"}, [&] { run(options); });
  EXPECT_EQ(files_beside_target(), 1U);
}

// A rotation of halves, and one of pairs of neighbours, each by its own definition.
std::vector<double> rotate(std::vector<double> x, double position, bool halves) {
  const std::size_t half = x.size() / 2;
  for (std::size_t pair = 0; pair < half; ++pair) {
    const double angle = position * std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(x.size()));
    double& a = x[halves ? pair : 2 * pair];
    double& b = x[halves ? pair + half : 2 * pair + 1];
    const double turned = a * std::cos(angle) - b * std::sin(angle);
    b = a * std::sin(angle) + b * std::cos(angle);
    a = turned;
  }
  return x;
}

TEST(RowOrders, RotationsAgreeAfterReordering) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  constexpr std::size_t kHeads = 3;
  const auto draw = [&] {
    std::vector<double> values(kHeads * kHead);
    for (double& value : values) value = normal(random);
    return values;
  };
  const std::vector<double> q = draw();
  const std::vector<double> k = draw();
  const auto head_of = [](const std::vector<double>& rows, std::size_t head, bool reordered) {
    std::vector<double> result;
    for (std::size_t i = 0; i < kHead; ++i) {
      const std::size_t row = head * kHead + i;
      result.push_back(rows[reordered ? row_in_halves(row, kHead) : row]);
    }
    return result;
  };
  for (std::size_t head = 0; head < kHeads; ++head) {
    for (const double distance : {0.0, 1.0, 17.0}) {
      const auto score = [&](bool halves) {
        const std::vector<double> a = rotate(head_of(q, head, !halves), 40.0 + distance, halves);
        const std::vector<double> b = rotate(head_of(k, head, !halves), 40.0, halves);
        double sum = 0;
        for (std::size_t i = 0; i < kHead; ++i) sum += a[i] * b[i];
        return sum;
      };
      EXPECT_NEAR(score(true), score(false), 1e-12);
    }
  }
}

}  // namespace
}  // namespace quarrel

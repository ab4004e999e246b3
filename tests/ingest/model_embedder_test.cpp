// A model as what texts are embedded with on their way into a store.
#include "ingest/model_embedder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "backend/create.h"
#include "base/error.h"
#include "ingest/ingest_estimate.h"
#include "ingest/line_source.h"
#include "support/fake_longbow.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"
#include "unit/gguf_support.h"

namespace quarrel::test {
namespace {

class EmbedderOfModels : public testing::Test {
 protected:
  static std::shared_ptr<LoadedModel> load(const std::filesystem::path& path) {
    MemoryLog log;
    return LoadedModel::load(path, make_device({.backend = "cpu", .threads = 2}), {}, log);
  }
  std::unique_ptr<LineSource> lines(std::string_view content) {
    write_file(folder_ / "in.txt", content);
    return std::make_unique<LineSource>(folder_ / "in.txt", LineSourceOptions{}, [](const std::string&) {});
  }

  TempDir folder_;
  const std::shared_ptr<LoadedModel> model_ = load(write_toy_embed(folder_.path()));
};

// From the engine's steps into the rows that are sent: what is stored is what `embed` gives.
TEST_F(EmbedderOfModels, RowsHaveTheModelsVectors) {
  ModelEmbedder embedder(model_, {}, "");
  FakeLongbow store;
  std::string content;
  for (int i = 0; i < 40; ++i) content += "the dog " + std::to_string(i * i) + "\n";
  Journal journal(folder_ / "journal", {.dimension = embedder.dimension()});
  journal.begin({});
  const auto source = lines(content);
  const IngestReport report = ingest(*source, embedder, store, "texts", ingest_schema(embedder.dimension(), {}, "toy"),
                                     journal, {.batch_rows = 7}, {.note = [](const std::string&) {}});
  ASSERT_EQ(store.rows.size(), 40u);
  std::uint64_t tokens = 0;
  for (const FakeRow& row : store.rows) {
    EXPECT_EQ(row.vector, embed(model_, std::vector<std::string>{row.text}).at(0).values) << row.text;
    EXPECT_EQ(row.vector, embedder.embed_one(row.text));
    tokens += embedder.tokens(row.text);
  }
  EXPECT_EQ(report.progress.tokens, tokens);
  EXPECT_EQ(embedder.cut_texts(), 0u);
}

TEST_F(EmbedderOfModels, APrefixIsEmbeddedWithTheText) {
  const ModelEmbedder plain(model_, {}, "");
  const ModelEmbedder prefixed(model_, {}, "the ");
  EXPECT_EQ(prefixed.embed_one("dog"), plain.embed_one("the dog"));
  EXPECT_EQ(prefixed.tokens("dog"), plain.tokens("the dog"));
  EXPECT_NE(prefixed.settings(), plain.settings());
}

TEST_F(EmbedderOfModels, ModelsAreToldApart) {
  const ModelEmbedder embedder(model_, {}, "");
  const TempDir other;
  std::filesystem::copy_file(model_->path(), other / "copy.gguf");
  EXPECT_EQ(ModelEmbedder(load(other / "copy.gguf"), {}, "").fingerprint(), embedder.fingerprint());
  const ModelEmbedder trained(load(write_toy_embed(other.path(), {.seed = 99})), {}, "");
  EXPECT_NE(trained.fingerprint(), embedder.fingerprint());
  EXPECT_NE(ModelEmbedder(model_, {.normalize = false}, "").settings(), embedder.settings());
}

TEST_F(EmbedderOfModels, OneVectorATextIsWanted) {
  expect_error(ErrorKind::usage, {"none"}, [&] { ModelEmbedder(model_, {.pooling = Pooling::none}, ""); });
}

TEST_F(EmbedderOfModels, AnEstimateCountsAndMeasures) {
  ModelEmbedder embedder(model_, {}, "");
  std::string content;
  std::uint64_t tokens = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string text = "the dog " + std::to_string(i);
    content += text + "\n";
    tokens += embedder.tokens(text);
  }
  content += "the dog 7\n";
  const auto watch = [](std::uint64_t) { return true; };
  const IngestEstimate estimate = estimate_ingest(*lines(content), embedder, nullptr, watch);
  EXPECT_EQ(estimate.texts, 301u);
  EXPECT_EQ(estimate.repeated, 1u);
  EXPECT_EQ(estimate.tokens, tokens);
  EXPECT_GT(estimate.sample_texts, 32u);
  EXPECT_LE(estimate.sample_texts, 64u);
  EXPECT_GT(estimate.bytes, 300u * static_cast<std::uint64_t>(embedder.dimension()) * 4);
  EXPECT_DOUBLE_EQ(estimate.seconds,
                   estimate.sample_seconds * static_cast<double>(tokens) / static_cast<double>(estimate.sample_tokens));

  {
    Journal journal(folder_ / "journal", {});
    journal.begin({});
    TextRecord record;
    const auto source = lines(content);
    std::vector<std::uint32_t> ids;
    for (int i = 0; i < 10 && source->next(record); ++i) ids.push_back(journal.claim(key_of(record)).id);
    journal.acknowledged(journal.sending(ids));
  }
  Journal journal(folder_ / "journal", {});
  const std::string before = read_file(folder_ / "journal");
  const IngestEstimate rest = estimate_ingest(*lines(content), embedder, &journal, watch);
  EXPECT_EQ(rest.stored_before, 11u);  // the one that stands there twice, too
  EXPECT_LT(rest.tokens, estimate.tokens);
  EXPECT_EQ(read_file(folder_ / "journal"), before);
  expect_error(ErrorKind::cancelled, {},
               [&] { estimate_ingest(*lines(content), embedder, nullptr, [](std::uint64_t) { return false; }); });
}

}  // namespace
}  // namespace quarrel::test

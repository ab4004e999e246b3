// What requests share, at its end and where something fails.
#include "server/service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <stdexcept>

#include "backend/create.h"
#include "base/error.h"
#include "server/long_jobs.h"
#include "server/ollama_models.h"
#include "support/temp_dir.h"
#include "support/toy_model.h"

namespace quarrel {
namespace {

struct FullDisk : Log {
  void write(LogLevel, std::string_view) override { throw std::bad_alloc(); }
};

TEST(LongJobsTest, TheEndStopsThemAndTakesNoMore) {
  FullDisk log;
  LongJobs jobs(log);
  std::promise<void> stopped;
  ASSERT_TRUE(jobs.start([&](const std::stop_token& stop) {
    const std::stop_callback told(stop, [&] { stopped.set_value(); });
    stopped.get_future().wait();
    throw std::runtime_error("in the middle of it");
  }));
  jobs.end();
  EXPECT_FALSE(jobs.start([](const std::stop_token&) {}));
}

class ServiceTest : public testing::Test {
 protected:
  std::unique_ptr<Service> service(ServiceOptions options = {}) {
    return std::make_unique<Service>(std::move(options), make_device({.backend = "cpu", .threads = 1}),
                                     ModelStore({.quarrel = folder_.path(), .ollama = {folder_ / "ollama"}}), log_);
  }

  test::TempDir folder_;
  FullDisk log_;
};

// A pull that waits its turn when the server ends.
TEST_F(ServiceTest, WhatStillWaitsAtTheEndIsRefusedItsJob) {
  std::unique_ptr<Service> ending = service();
  std::promise<void> stopped;
  const std::shared_future<void> stop_seen = stopped.get_future().share();
  ASSERT_TRUE(ending->jobs().start([&](const std::stop_token& stop) {
    const std::stop_callback told(stop, [&] { stopped.set_value(); });
    stop_seen.wait();
  }));
  bool started = true;
  ending->run_text_work([&] { stop_seen.wait(); });
  ending->run_text_work([&, &shared = *ending] { started = shared.jobs().start([](const std::stop_token&) {}); });
  ending.reset();
  EXPECT_FALSE(started);
}

TEST_F(ServiceTest, ATaskThatThrowsEndsNobody) {
  const std::unique_ptr<Service> shared = service();
  shared->run_text_work([] { throw std::runtime_error("for want of anything"); });
  std::promise<void> next;
  shared->run_text_work([&] { next.set_value(); });
  next.get_future().wait();
}

// An engine's thread may be about to say something when the service ends.
TEST_F(ServiceTest, TextWorkThatComesAfterTheEndIsDropped) {
  std::unique_ptr<Service> ending = service();
  const auto post = ending->text_poster();
  std::promise<void> done;
  post([&] { done.set_value(); });
  done.get_future().wait();
  ending.reset();
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> weak = held;
  post([held = std::move(held)] { FAIL() << "there is no thread for it"; });
  EXPECT_TRUE(weak.expired());
}

// The store sees no difference in letter case and the extension, the key does.
TEST_F(ServiceTest, AKeyReplacesNoModelOfAnotherSpelling) {
  const std::unique_ptr<Service> shared = service();
  std::ofstream(folder_ / "Alpha.gguf") << "weights";
  const auto refused = [&](const std::string& name, const Caller& caller) {
    try {
      require_may_make(*shared, name, caller);
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 403u) << name;
      EXPECT_EQ(error.code, "model_not_allowed") << name;
      return true;
    }
    return false;
  };
  const Caller narrow{.models = {"alpha", "ALPHA", "Alpha.gguf", "beta"}};
  for (const char* name : {"alpha", "ALPHA", "Alpha.gguf", "Alpha"}) EXPECT_TRUE(refused(name, narrow)) << name;
  EXPECT_FALSE(refused("beta", narrow));
  for (const char* name : {"Alpha", "alpha"}) {
    EXPECT_FALSE(refused(name, Caller{.models = {"alpha", "Alpha"}})) << name;
    EXPECT_FALSE(refused(name, Caller{})) << name;
  }
}

// Nor one of Ollama's store, which Quarrel's own goes before, nor the one that `pull` knows by another name.
TEST_F(ServiceTest, AKeyPutsNoModelBeforeAnother) {
  const std::unique_ptr<Service> shared = service();
  std::filesystem::create_directories(folder_ / "ollama/manifests/r.example/me/big");
  std::ofstream(folder_ / "ollama/manifests/r.example/me/big/7B") << "{}";
  const auto may_make = [&](const std::string& name, const std::vector<std::string>& models) {
    try {
      require_may_make(*shared, name, Caller{.models = models});
    } catch (const ApiError& error) {
      EXPECT_EQ(error.code, "model_not_allowed") << name;
      return false;
    }
    return true;
  };
  EXPECT_FALSE(may_make("me/Big:7b", {"me/Big:7b"}));
  EXPECT_TRUE(may_make("me/big:7B", {"me/big:7B"}));
  EXPECT_TRUE(may_make("me/Big:7b", {"me/Big:7b", "me/big:7B"}));
  EXPECT_TRUE(may_make("me/Big", {"me/Big"})) << "that is another tag";
  const std::string stem = "SmolLM2-135M-Instruct.Q4_1";
  EXPECT_TRUE(may_make(stem, {stem})) << "its two names are one model";
  EXPECT_TRUE(may_make(stem, {"default"}));
  EXPECT_FALSE(may_make(stem, {"other"}));
}

constexpr const char* kStem = "SmolLM2-135M-Instruct.Q4_1";  // the file of the model `default`

// A key may name it by either, whichever name a server that was started with names was given.
TEST_F(ServiceTest, AModelIsFoundByBothItsNames) {
  std::filesystem::rename(test::write_toy("llama", folder_.path()), folder_ / (std::string(kStem) + ".gguf"));
  for (const std::string started_with : {"", "default", kStem}) {
    SCOPED_TRACE(started_with);
    ServiceOptions options;
    if (!started_with.empty()) options.models = {started_with};
    const std::unique_ptr<Service> shared = service(options);
    const std::string offered = started_with.empty() ? "default" : started_with;
    for (const std::string& name : {std::string("default"), std::string(kStem), std::string(kStem) + ":latest"}) {
      ASSERT_TRUE(shared->look_up(name, {})) << name;
      EXPECT_EQ(shared->find(name, {}).name, offered) << name;
      for (const std::string key : {"default", kStem}) {
        EXPECT_TRUE(shared->look_up(name, Caller{.models = {key}})) << name << " by a key for " << key;
      }
      EXPECT_FALSE(shared->look_up(name, Caller{.models = {"other"}})) << name;
    }
    EXPECT_EQ(shared->models({}).size(), 1u);
    EXPECT_FALSE(shared->look_up(":latest", {}));
  }
}

// A name that `pull` gives a model may be another's here, whose key is another one then.
class ForeignNameTest : public ServiceTest {
 protected:
  // A model of our own store, whole and in one file.
  void store(const std::string& stem) {
    std::filesystem::rename(test::write_toy("llama", folder_.path()), folder_ / (stem + ".gguf"));
  }
  std::string private_file(const std::string& name) {
    std::filesystem::create_directories(folder_ / "private");
    const std::filesystem::path path = folder_ / "private" / (name + ".gguf");
    std::filesystem::rename(test::write_toy("llama", folder_.path()), path);
    return path.string();
  }
  void put_into_ollamas_store(const std::string& model) {
    const std::string digest(64, 'a');
    std::filesystem::create_directories(folder_ / "ollama/blobs");
    const std::filesystem::path weights = folder_ / "ollama/blobs" / ("sha256-" + digest);
    std::filesystem::rename(test::write_toy("llama", folder_.path()), weights);
    const std::string config(64, 'b');
    std::ofstream(folder_ / "ollama/blobs" / ("sha256-" + config)) << R"({"model_format":"gguf"})";
    const std::filesystem::path place = folder_ / "ollama/manifests/registry.ollama.ai/library" / model;
    std::filesystem::create_directories(place);
    std::ofstream(place / "latest") << R"({"config":{"digest":"sha256:)" << config
                                    << R"("},"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":")"
                                    << "sha256:" << digest << R"(","size":)" << std::filesystem::file_size(weights)
                                    << "}]}";
  }
  // What a key for these models gets when it asks for that name: its source, or "" for nothing.
  static std::string got(const Service& shared, const std::string& name, std::vector<std::string> models) {
    const std::optional<OfferedModel> found = shared.look_up(name, Caller{.models = std::move(models)});
    return found ? found->source : "";
  }
};

TEST_F(ForeignNameTest, AFileOfTheSettingsIsForItsOwnKeys) {
  store(kStem);
  ServiceOptions options;
  options.configured["default"] = private_file("secret");
  const std::unique_ptr<Service> shared = service(options);
  EXPECT_EQ(got(*shared, "default", {kStem}), "");
  EXPECT_EQ(got(*shared, "default", {"default"}), options.configured["default"]);
  EXPECT_FALSE(shared->may_use(Caller{.models = {kStem}}, "default")) << "metrics ask that";
  EXPECT_TRUE(shared->models(Caller{.models = {kStem}}).empty());
  EXPECT_THROW(require_may_make(*shared, "default", Caller{.models = {kStem}}), ApiError);
}

TEST_F(ForeignNameTest, AFileThatTheServerWasStartedWithIsForItsOwnKeys) {
  store(kStem);
  const std::string file = private_file("default");
  const std::unique_ptr<Service> shared = service({.models = {file, kStem}});
  EXPECT_EQ(got(*shared, "default", {"default"}), file);
  EXPECT_EQ(got(*shared, kStem, {"default"}), "");
  EXPECT_NE(got(*shared, "default", {kStem}), file);
  EXPECT_FALSE(shared->may_use(Caller{.models = {kStem}}, "default"));
  EXPECT_FALSE(shared->may_use(Caller{.models = {"default"}}, kStem));
  const std::string other = private_file(kStem);
  EXPECT_NE(got(*service({.models = {"default", other}}), kStem, {"default"}), other);
}

TEST_F(ForeignNameTest, AModelOfOllamasIsForItsOwnKeys) {
  const std::string stem = "all-MiniLM-L6-v2.F32";
  put_into_ollamas_store("minilm");
  for (const std::vector<std::string>& names : {std::vector<std::string>{}, std::vector<std::string>{"minilm"}}) {
    const std::unique_ptr<Service> shared = service({.models = names});
    for (const char* asked : {"minilm", "minilm:latest"}) {
      EXPECT_EQ(got(*shared, asked, {stem}), "") << asked;
      EXPECT_NE(got(*shared, asked, {"minilm"}), "") << asked;
      EXPECT_FALSE(!names.empty() && shared->may_use(Caller{.models = {stem}}, asked)) << asked;
    }
    EXPECT_FALSE(shared->may_use(Caller{.models = {stem}}, "minilm:latest"));
    EXPECT_THROW(require_may_make(*shared, stem, Caller{.models = {stem}}), ApiError) << "it would come before it";
  }
  // Beside it our own, which has both names; Ollama's keeps its tag.
  store(stem);
  const std::unique_ptr<Service> both = service();
  EXPECT_EQ(got(*both, "minilm", {stem}), "minilm");
  EXPECT_EQ(got(*both, "minilm:latest", {stem}), "minilm") << "the one that the key is for";
  EXPECT_FALSE(both->may_use(Caller{.models = {stem}}, "minilm:latest"));
}

TEST_F(ForeignNameTest, AModelInPartsHasNoSecondName) {
  store(std::string(kStem) + "-00001-of-00001");
  const std::unique_ptr<Service> shared = service({.models = {kStem}});
  EXPECT_EQ(got(*shared, kStem, {kStem}), kStem);
  EXPECT_EQ(got(*shared, kStem, {"default"}), "");
}

// What fails a start with these options; nothing: it starts.
class StartTest : public ServiceTest {
 protected:
  std::optional<ErrorKind> fault(ServiceOptions options) {
    try {
      service(std::move(options));
    } catch (const Error& error) {
      return error.kind();
    }
    return std::nullopt;
  }
};

TEST_F(StartTest, ATableIsAboutAModelByEitherOfItsNames) {
  std::filesystem::rename(test::write_toy("llama", folder_.path()), folder_ / (std::string(kStem) + ".gguf"));
  for (const std::string name : {"default", kStem}) {
    ServiceOptions options;
    options.model_settings[name].load.executor.context = 77;
    const std::unique_ptr<Service> shared = service(options);
    EXPECT_EQ(shared->load_options("default").executor.context, 77) << name;
    EXPECT_EQ(shared->load_options(kStem).executor.context, 77) << name;
  }
  ServiceOptions both;
  both.model_settings["default"] = both.model_settings[kStem] = {};
  EXPECT_EQ(fault(both), ErrorKind::usage);
  // A file that is called so is another model.
  const std::filesystem::path file = folder_ / "files/default.gguf";
  std::filesystem::create_directories(file.parent_path());
  std::filesystem::copy_file(folder_ / (std::string(kStem) + ".gguf"), file);
  both.models = {file.string()};
  EXPECT_EQ(fault(both), std::nullopt);
  both.model_settings.erase(kStem);
  both.model_settings["default"].load.executor.context = 77;
  EXPECT_EQ(service(both)->load_options("default").executor.context, 77);
  EXPECT_NE(service(both)->load_options(kStem).executor.context, 77);
}

// Also where the server is started with names, which come before it.
TEST_F(StartTest, ADefaultModelThatIsNotThereIsAFault) {
  std::filesystem::rename(test::write_toy("llama", folder_.path()), folder_ / (std::string(kStem) + ".gguf"));
  for (const std::vector<std::string>& names : {std::vector<std::string>{}, std::vector<std::string>{"default"}}) {
    EXPECT_EQ(fault({.models = names, .default_model = "nosuch"}), ErrorKind::not_found);
    EXPECT_EQ(fault({.models = names, .default_model = "default"}), std::nullopt);
    EXPECT_EQ(fault({.models = names, .default_model = kStem}), std::nullopt);
  }
}

// Nobody would catch it, and the process would end.
TEST_F(ServiceTest, TheHubGoesOnThoughItCannotEvenSayWhatFailed) {
  struct Call final : RunningCall {
    void end(const ApiError&) override {}
  };
  const auto call = std::make_shared<Call>();
  std::promise<void> again;
  std::atomic<int> looks = 0;
  const std::unique_ptr<Service> shared = service();
  shared->set_accepts([&](const Caller&) -> bool {
    if (++looks == 2) again.set_value();
    throw std::bad_alloc();
  });
  shared->sockets().watch(call, std::make_shared<const Caller>());
  again.get_future().wait();
}

}  // namespace
}  // namespace quarrel

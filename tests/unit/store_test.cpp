// Finding models by path and by name, in a made-up Quarrel store and a made-up Ollama store.
#include "store/store.h"

#include <gtest/gtest.h>

#include <map>

#include "base/sha256.h"
#include "gguf/writer.h"
#include "store/model_description.h"
#include "store/ollama_store.h"
#include "store/own_store.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TempDir;
using test::write_file;

constexpr std::string_view kDefaultFile = "SmolLM2-135M-Instruct.Q4_1.gguf";

std::string toy_model() {
  GgufWriter writer;
  writer.put_string("general.architecture", "toy");
  writer.add_tensor("w", {1000, 2}, std::vector<float>(2000, 0.5F));
  return std::string(test::as_text(writer.to_bytes()));
}

// Part `number`, from 1 on, of a model in several files.
std::string toy_part(std::uint32_t number, std::uint32_t count) {
  GgufWriter writer;
  writer.put_string("general.architecture", "toy");
  writer.put_u32("split.no", number - 1);
  writer.put_u32("split.count", count);
  writer.add_tensor("w" + std::to_string(number), {1000}, std::vector<float>(1000, 0.5F));
  return std::string(test::as_text(writer.to_bytes()));
}

// While it lives the process works in another folder.
class WorkingFolder {
 public:
  explicit WorkingFolder(const fs::path& folder) { fs::current_path(folder); }
  ~WorkingFolder() {
    std::error_code ignored;
    fs::current_path(before_, ignored);
  }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  const fs::path before_ = fs::current_path();
};

class Store : public ::testing::Test {
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

TEST_F(Store, PathsFromTheEnvironment) {
  std::map<std::string, std::string, std::less<>> variables{{"HOME", "/h"}};
  const auto paths = [&] {
    return StorePaths::from([&](std::string_view name) -> std::optional<std::string> {
      const auto it = variables.find(name);
      return it == variables.end() ? std::nullopt : std::optional(it->second);
    });
  };
  EXPECT_EQ(paths().quarrel, "/h/.local/share/quarrel/models");
  ASSERT_EQ(paths().ollama.size(), 2U);
  EXPECT_EQ(paths().ollama[0], "/h/.ollama/models");
  EXPECT_EQ(paths().ollama[1], "/usr/share/ollama/.ollama/models");
  variables["XDG_DATA_HOME"] = "/data";
  EXPECT_EQ(paths().quarrel, "/data/quarrel/models");
  variables["XDG_DATA_HOME"] = "relative";  // the convention says to ignore it
  EXPECT_EQ(paths().quarrel, "/h/.local/share/quarrel/models");
  variables["QUARREL_MODELS"] = "/models";
  EXPECT_EQ(paths().quarrel, "/models");
  variables["OLLAMA_MODELS"] = "  \"/o\"\n";
  EXPECT_EQ(paths().ollama, std::vector<fs::path>{"/o"});
  variables["OLLAMA_MODELS"] = "";
  EXPECT_EQ(paths().ollama.size(), 2U);
  variables.clear();
  EXPECT_TRUE(paths().quarrel.empty());
}

TEST_F(Store, ResolvesAPath) {
  write_file(folder_ / "x/m.gguf", model_);
  const ResolvedModel model = resolve((folder_ / "x/m.gguf").string());
  EXPECT_EQ(model.path, folder_ / "x/m.gguf");
  EXPECT_EQ(model.name, "m");
  EXPECT_EQ(model.place, ModelPlace::file);
  expect_error(ErrorKind::not_found, {"absent.gguf"}, [&] { resolve((folder_ / "absent.gguf").string()); });
}

TEST_F(Store, ADirectoryNamesItsModels) {
  write_file(folder_ / "x/m.gguf", model_);
  expect_error(ErrorKind::usage, {"folder", "x/m.gguf"}, [&] { resolve((folder_ / "x").string()); });
  fs::create_directory(folder_ / "empty");
  expect_error(ErrorKind::usage, {"folder without GGUF"}, [&] { resolve((folder_ / "empty").string()); });
}

TEST_F(Store, ResolvesNamesOfTheOwnStore) {
  write_file(folder_ / "quarrel/Tiny.gguf", model_);
  write_file(folder_ / "quarrel/.hidden.gguf", model_);
  write_file(folder_ / "quarrel/big-00001-of-00002.gguf", model_);
  write_file(folder_ / "quarrel/big-00002-of-00002.gguf", model_);
  for (const char* name : {"Tiny", "tiny", "Tiny.gguf"}) {
    EXPECT_EQ(resolve(name).path, folder_ / "quarrel/Tiny.gguf") << name;
    EXPECT_EQ(resolve(name).place, ModelPlace::quarrel);
  }
  EXPECT_EQ(resolve("big").path, folder_ / "quarrel/big-00001-of-00002.gguf");
  expect_error(ErrorKind::not_found, {}, [&] { resolve(".hidden"); });
}

TEST_F(Store, DefaultMeansTheFirstPullableModel) {
  expect_error(ErrorKind::not_found, {"quarrel pull default"}, [&] { resolve("default"); });
  expect_error(ErrorKind::not_found, {"'nothing-like-it'", "quarrel pull default"},
               [&] { resolve("nothing-like-it"); });
  write_file(folder_ / "quarrel" / kDefaultFile, model_);
  EXPECT_EQ(resolve("default").path, folder_ / "quarrel" / kDefaultFile);
  expect_error(ErrorKind::not_found, {"'nothing-like-it'", "`quarrel list`", "`quarrel pull default`"},
               [&] { resolve("nothing-like-it"); });
}

TEST_F(Store, UnknownNamesComeWithTheNearest) {
  write_file(folder_ / "quarrel/smollm.gguf", model_);
  put_model("registry.example/library/mistral/latest");
  put_model("registry.example/library/mistral/7b-instruct");
  expect_error(ErrorKind::not_found, {"'mistrl'", "'mistral'"}, [&] { resolve("mistrl"); });
  expect_error(ErrorKind::not_found, {"'mistral:7b-instruct'"}, [&] { resolve("mistral:7b"); });
  expect_error(ErrorKind::not_found, {"'smollm'"}, [&] { resolve("smolm"); });
  expect_error(ErrorKind::not_found, {"'default'"}, [&] { resolve("defualt"); });
}

TEST_F(Store, ResolvesOllamaNames) {
  const std::string parts = model_layer() + "," + layer("template", blob("{{ .Prompt }}"), 13) + "," +
                            layer("system", blob("old"), 3) + "," + layer("system", blob("be brief"), 8) + "," +
                            layer("params", blob(R"({"stop":["x"]})"), 14) + "," + layer("license", blob("MIT"), 3);
  put_manifest("registry.example/library/mistral/latest", manifest(config(), parts));
  put_model("registry.example/library/mistral/7b-instruct");
  put_model("other.example:5000/some-one/mine/q4");
  const ResolvedModel model = resolve("mistral");
  EXPECT_EQ(model.place, ModelPlace::ollama);
  EXPECT_EQ(model.name, "mistral:latest");
  EXPECT_EQ(test::read_file(model.path), model_);
  EXPECT_EQ(model.system, "be brief");
  EXPECT_EQ(model.template_text, "{{ .Prompt }}");
  EXPECT_EQ(model.params, R"({"stop":["x"]})");
  for (const char* name : {"Mistral:LATEST", "library/mistral", "registry.example/library/mistral",
                           "https://registry.example/library/mistral:latest"}) {
    EXPECT_EQ(resolve(name).name, "mistral:latest") << name;
  }
  EXPECT_EQ(resolve("mistral:7b-instruct").name, "mistral:7b-instruct");
  EXPECT_FALSE(resolve("mistral:7b-instruct").system.has_value());
  EXPECT_EQ(resolve("some-one/mine:q4").name, "some-one/mine:q4");
  EXPECT_EQ(resolve("other.example:5000/some-one/mine:q4").name, "some-one/mine:q4");
  expect_error(ErrorKind::not_found, {}, [&] { resolve("some-one/mine"); });
  expect_error(ErrorKind::not_found, {}, [&] { resolve("elsewhere.example/library/mistral"); });
}

TEST_F(Store, ANameOfTwoHostsMustBeCompleted) {
  put_model("a.example/library/twin/latest");
  put_model("b.example/library/twin/latest");
  expect_error(ErrorKind::usage, {"a.example/library/twin:latest", "b.example/library/twin:latest"},
               [&] { resolve("twin"); });
  EXPECT_EQ(resolve("b.example/library/twin").name, "b.example/library/twin:latest");
}

TEST_F(Store, AnEarlierOllamaFolderHidesALaterOne) {
  put_model("r.example/library/m/latest");
  write_file(folder_ / "second/manifests/r.example/library/m/latest", "broken");
  const ModelStore both({folder_ / "quarrel", {folder_ / "ollama", folder_ / "second"}});
  EXPECT_EQ(both.resolve("m").place, ModelPlace::ollama);
  EXPECT_EQ(both.list().size(), 1U);
}

TEST_F(Store, OldBlobNamesAreFound) {
  put_model("r.example/library/m/latest");
  const std::string digest = sha256(model_);
  fs::rename(folder_ / "ollama/blobs" / ("sha256-" + digest), folder_ / "ollama/blobs" / ("sha256:" + digest));
  EXPECT_EQ(test::read_file(resolve("m").path), model_);
}

TEST_F(Store, NamesCannotLeaveTheStores) {
  write_file(folder_ / "secret.gguf", model_);
  write_file(folder_ / "secret", model_);
  write_file(folder_ / "ollama/manifests/a/b/c/secret", manifest(config(), model_layer()));
  fs::create_directories(folder_ / "quarrel");
  for (const char* name : {"../secret",
                           "..",
                           ".",
                           "%2e%2e/secret",
                           "..\\secret",
                           "a/../b",
                           "a/b/../c:secret",
                           "//secret",
                           "a//b",
                           "x:../../secret",
                           "../a/b/c:secret",
                           "~/secret",
                           ":latest",
                           "a:",
                           "/",
                           "a/b/c/d/e:f",
                           "-x",
                           "a b",
                           "a\nb",
                           "\xff\xfe"}) {
    const auto thrown = test::thrown_by([&] { resolve(name); });
    ASSERT_TRUE(thrown.happened) << name;
    EXPECT_TRUE(thrown.kind == ErrorKind::not_found || thrown.kind == ErrorKind::usage) << thrown.message;
  }
  expect_error(ErrorKind::usage, {}, [&] { resolve(""); });
  expect_error(ErrorKind::usage, {}, [&] { resolve(std::string("a\0b", 3)); });
  expect_error(ErrorKind::not_found, {}, [&] { resolve(std::string(100'000, 'a')); });
}

TEST_F(Store, DigestsCannotLeaveTheStore) {
  write_file(folder_ / "secret", model_);
  const std::string good = sha256(model_);
  const std::vector<std::string> digests{"",
                                         "sha256:",
                                         "sha256:../../secret",
                                         "sha256:" + std::string(61, 'a') + "/..",
                                         "sha256:" + good.substr(1),
                                         "sha256:" + good + "0",
                                         "sha256/" + good,
                                         "sha512:" + good,
                                         good,
                                         "sha256:" + std::string(63, 'a') + "g",
                                         "../sha256:" + good};
  for (const std::string& digest : digests) {
    put_manifest("r.example/library/bad/latest", manifest(config(), layer("model", digest, model_.size())));
    expect_error(ErrorKind::bad_file, {"'bad:latest'", "digest"}, [&] { resolve("bad"); });
    put_manifest("r.example/library/bad/latest", manifest(config(), model_layer() + "," + layer("system", digest, 3)));
    expect_error(ErrorKind::bad_file, {"'bad:latest'", "digest"}, [&] { resolve("bad"); });
    put_manifest("r.example/library/bad/latest", manifest(digest, model_layer()));
    expect_error(ErrorKind::bad_file, {"'bad:latest'", "digest"}, [&] { resolve("bad"); });
  }
}

TEST_F(Store, BadManifestsAreRefusedAndListedWithTheirReason) {
  const std::string deep = "{\"layers\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  const std::vector<std::pair<std::string, std::string>> bad{
      {"", "not a JSON object"},
      {"[]", "not a JSON object"},
      {"{", "not a JSON object"},
      {"{\"layers\": \xff}", "not a JSON object"},
      {"{}", "layers"},
      {R"({"layers":{}})", "layers"},
      {R"({"layers":[1]})", "layer"},
      {R"({"layers":[]})", "no layer with weights"},
      {R"({"layers":[{"mediaType":7}]})", "no layer with weights"},
      {R"({"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":7}]})", "digest"},
      {deep, "nested"},
      {"{\"x\":\"" + std::string(5 << 20, 'x') + "\"}", "larger than"},
      {manifest(config("[]"), model_layer()), "configuration"},
      {manifest(config(), layer("model", "sha256:" + std::string(64, '0'), 1)), "missing"},
      {manifest(config(), layer("model", blob(model_), 1)), "instead of 1"},
      {manifest(config(), model_layer() + "," + layer("params", blob("[1]"), 3)), "params layer"},
  };
  for (std::size_t i = 0; i < bad.size(); ++i) put_manifest("r.example/library/bad/" + std::to_string(i), bad[i].first);
  put_model("r.example/library/good/latest");
  auto models = listed();
  EXPECT_EQ(models.size(), bad.size() + 1);
  EXPECT_TRUE(models["good:latest"].problem.empty());
  for (std::size_t i = 0; i < bad.size(); ++i) {
    const std::string name = "bad:" + std::to_string(i);
    SCOPED_TRACE(name + " " + bad[i].second);
    const auto thrown = test::thrown_by([&] { resolve(name); });
    ASSERT_TRUE(thrown.happened);
    EXPECT_NE(thrown.message.find(bad[i].second), std::string::npos) << thrown.message;
    EXPECT_EQ(models[name].problem, thrown.message);
  }
}

TEST_F(Store, RemoteAndSafetensorsModelsAreUnsupported) {
  put_manifest("r.example/library/cloud/latest", manifest(config(R"({"remote_host":"x","remote_model":"y"})"), ""));
  put_manifest("r.example/library/safe/latest",
               manifest(config(R"({"model_format":"safetensors"})"), layer("tensor", blob("x"), 1)));
  expect_error(ErrorKind::unsupported, {"'cloud:latest'", "remote"}, [&] { resolve("cloud"); });
  expect_error(ErrorKind::unsupported, {"'safe:latest'", "safetensors"}, [&] { resolve("safe"); });
}

TEST_F(Store, ListsBothStores) {
  write_file(folder_ / "quarrel/toy.gguf", model_);
  write_file(folder_ / "quarrel/broken.gguf", "not a model");
  write_file(folder_ / "quarrel/notes.txt", "");
  write_file(folder_ / "quarrel/.partial-abc/x.gguf", model_);
  put_model("r.example/library/m/latest");
  put_manifest("r.example/library/m/.DS_Store", "");
  auto models = listed();
  ASSERT_EQ(models.size(), 3U);
  const ListedModel& toy = models["toy"];
  EXPECT_EQ(toy.place, ModelPlace::quarrel);
  EXPECT_EQ(toy.bytes, model_.size());
  EXPECT_EQ(toy.parameters, "2K");
  EXPECT_EQ(toy.quantisation, "F32");
  EXPECT_TRUE(toy.problem.empty());
  EXPECT_GT(toy.modified, std::chrono::system_clock::now() - std::chrono::hours(1));
  EXPECT_NE(models["broken"].problem.find("not a GGUF file"), std::string::npos);
  EXPECT_EQ(models["broken"].bytes, 11U);
  const ListedModel& theirs = models["m:latest"];
  EXPECT_EQ(theirs.place, ModelPlace::ollama);
  EXPECT_EQ(theirs.parameters, "2K");
  EXPECT_EQ(theirs.quantisation, "F32");
  EXPECT_EQ(theirs.bytes, model_.size());
  EXPECT_TRUE(ModelStore({folder_ / "nowhere", {folder_ / "nowhere"}}).list().empty());
  EXPECT_TRUE(ModelStore(StorePaths{}).list().empty());
}

TEST_F(Store, ListsAPulledModelByBothNames) {
  write_file(folder_ / "quarrel" / kDefaultFile, model_);
  write_file(folder_ / "quarrel/other.gguf", model_);
  EXPECT_EQ(listed()["SmolLM2-135M-Instruct.Q4_1"].alias, "default");
  EXPECT_EQ(listed()["other"].alias, "");
}

TEST_F(Store, APulledModelThatWasChangedIsNoticed) {
  // minilm is converted, so that its size is not known beforehand.
  const fs::path path = folder_ / "quarrel/all-MiniLM-L6-v2.F32.gguf";
  const std::string name = path.stem().string();
  write_file(path, model_);
  EXPECT_EQ(listed()[name].problem, "") << "nothing was noted, so nothing is known";
  EXPECT_FALSE(change_warning(resolve("minilm")).has_value());

  write_file(stamp_path(path), stamp_line(path, sha256(model_)));
  EXPECT_EQ(listed()[name].problem, "");
  EXPECT_FALSE(change_warning(resolve("minilm")).has_value());

  std::string damaged = model_;
  damaged[damaged.size() - 1] ^= 1;
  write_file(path, damaged);
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(2));  // it may not have moved on
  EXPECT_NE(listed()[name].problem.find("run `quarrel pull minilm`"), std::string::npos);
  const auto warning = change_warning(resolve("minilm"));
  ASSERT_TRUE(warning.has_value());
  EXPECT_EQ(*warning, listed()[name].problem);
}

TEST_F(Store, APulledModelOfAnotherSizeIsNoticedWithoutANote) {
  write_file(folder_ / "quarrel" / kDefaultFile, model_);
  EXPECT_NE(listed()["SmolLM2-135M-Instruct.Q4_1"].problem.find("`quarrel pull default`"), std::string::npos);
  write_file(folder_ / "elsewhere" / kDefaultFile, model_);
  EXPECT_FALSE(change_warning(resolve((folder_ / "elsewhere" / kDefaultFile).string())).has_value())
      << "a file elsewhere is its owner's affair";
}

TEST_F(Store, ACopyThatWasChangedIsNoticedAndVerified) {
  const auto touch = [](const fs::path& path) {
    fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(2));
  };
  const auto verified = [&](const std::string& name) {
    for (const ListedModel& model : store().list([](const StoredFile& file) { return verify_stored(file); })) {
      if (model.name == name) return model.problem;
    }
    return std::string("absent");
  };
  const fs::path source = folder_ / "quarrel/all-MiniLM-L6-v2.F32.gguf";
  write_file(source, model_);
  write_stamp(source, sha256(model_));
  const fs::path copy = store().add_name("minilm", "mine").path;
  const fs::path other = folder_ / "quarrel/other.gguf";
  write_file(folder_ / "quarrel/.new", model_ + "o");
  store().adopt("other", folder_ / "quarrel/.new", sha256(model_ + "o"), {});
  for (const std::string name : {"mine", "other"}) {
    EXPECT_EQ(listed()[name].problem, "");
    EXPECT_FALSE(change_warning(resolve(name)).has_value());
  }

  touch(copy);  // what is in it is the same, which only reading can tell
  touch(other);
  for (const std::string name : {"mine", "other"}) {
    const auto warning = change_warning(resolve(name));
    ASSERT_TRUE(warning.has_value());
    EXPECT_NE(warning->find("`quarrel list --verify`"), std::string::npos) << *warning;
    EXPECT_EQ(listed()[name].problem, *warning);
    EXPECT_TRUE(listed()[name].usable);
  }
  for (const std::string name : {"mine", "other"}) {
    EXPECT_EQ(verified(name), "");
    EXPECT_FALSE(change_warning(resolve(name)).has_value()) << "it was noted again";
  }

  std::string damaged = model_;
  damaged[damaged.size() - 1] ^= 1;
  write_file(copy, damaged);  // both names of it
  write_file(other, damaged);
  EXPECT_NE(verified("all-MiniLM-L6-v2.F32").find("run `quarrel pull minilm`"), std::string::npos);
  const std::string problem = verified("mine");
  EXPECT_NE(problem.find("`quarrel pull minilm`, `quarrel rm mine` and `quarrel cp minilm mine`"), std::string::npos)
      << problem;
  EXPECT_NE(verified("other").find("`quarrel rm other`"), std::string::npos);
  touch(copy);
  touch(other);
  EXPECT_TRUE(change_warning(resolve("mine")).has_value());
  EXPECT_TRUE(change_warning(resolve("other")).has_value());

  write_file(other, model_ + "x");
  write_file(folder_ / "quarrel/own.gguf", model_);
  store().create("other", resolve("own"), {});
  EXPECT_EQ(listed()["other"].problem, "") << "nothing was noted of what took its place";
}

TEST_F(Store, AFileThatIsReplacedWhileItIsVerifiedKeepsANoteOfItsOwn) {
  const fs::path path = folder_ / "quarrel/m.gguf";
  const auto replace_by = [&](const std::string& content) {
    write_file(folder_ / "quarrel/.new", content);
    store().adopt("m", folder_ / "quarrel/.new", sha256(content), {});
  };
  int reads = 0;
  const auto replaced_in_the_middle = [&](std::uint64_t, std::uint64_t) {
    if (++reads == 1) replace_by(model_ + "newer");
  };
  replace_by(model_);
  EXPECT_EQ(verify_stored({"m", {path}}, replaced_in_the_middle).value_or(""), "");
  EXPECT_EQ(known_digest(path), sha256(model_ + "newer")) << "the old one had another";
  EXPECT_EQ(reads, 2) << "the new one was read too";

  write_file(path, model_ + "is wrong");
  reads = 0;
  EXPECT_EQ(verify_stored({"m", {path}}, replaced_in_the_middle).value_or(""), "") << "the wrong one has gone";
  EXPECT_EQ(known_digest(path), sha256(model_ + "newer"));

  reads = 0;
  const auto replaced_each_time = [&](std::uint64_t, std::uint64_t) { replace_by(model_ + std::to_string(++reads)); };
  EXPECT_EQ(verify_stored({"m", {path}}, replaced_each_time).value_or(""), "");
  EXPECT_EQ(known_digest(path), sha256(model_ + std::to_string(reads)));
}

TEST_F(Store, EveryPartOfASplitModelIsLookedAt) {
  const fs::path second = folder_ / "quarrel/big-00002-of-00002.gguf";
  write_file(folder_ / "quarrel/big-00001-of-00002.gguf", model_);
  write_file(second, model_);
  write_stamp(folder_ / "quarrel/big-00001-of-00002.gguf", sha256(model_));
  write_stamp(second, sha256(model_));
  EXPECT_FALSE(change_warning(resolve("big")).has_value());
  write_file(second, model_ + "!");
  const auto warning = change_warning(resolve("big"));
  ASSERT_TRUE(warning.has_value());
  EXPECT_NE(warning->find(second.string()), std::string::npos);
}

TEST_F(Store, RemovesModelsOfItsOwn) {
  write_file(folder_ / "quarrel" / kDefaultFile, model_);
  write_file(stamp_path(folder_ / "quarrel" / kDefaultFile), "stamp");
  write_file(folder_ / "quarrel/big-00001-of-00002.gguf", model_);
  write_file(folder_ / "quarrel/big-00002-of-00002.gguf", model_);
  write_file(folder_ / "quarrel/bigger.gguf", model_);
  const RemovedModel removed = store().remove("BIG");
  EXPECT_EQ(removed.name, "big");
  EXPECT_EQ(removed.bytes, 2 * model_.size());
  store().add_name("bigger", "biggest");
  EXPECT_EQ(store().remove("biggest").bytes, 0U) << "the other name still holds the file";
  store().remove("default");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "quarrel"), fs::directory_iterator()), 1);
  EXPECT_TRUE(fs::exists(folder_ / "quarrel/bigger.gguf"));
}

TEST_F(Store, RemovesNothingElse) {
  put_model("r.example/library/m/latest");
  write_file(folder_ / "x.gguf", model_);
  write_file(folder_ / "quarrel/y.gguf", model_);
  expect_error(ErrorKind::usage, {"'m:latest'", "Ollama", "never writes"}, [&] { store().remove("m"); });
  expect_error(ErrorKind::usage, {"is a file"}, [&] { store().remove((folder_ / "x.gguf").string()); });
  expect_error(ErrorKind::usage, {"is a file"}, [&] { store().remove((folder_ / "quarrel/y.gguf").string()); });
  expect_error(ErrorKind::not_found, {"there is no model 'z' in Quarrel's store"}, [&] { store().remove("z"); });
  expect_error(ErrorKind::not_found, {"'yy'", "did you mean 'y'?"}, [&] { store().remove("yy"); });
  EXPECT_EQ(listed().size(), 2U);
  EXPECT_TRUE(fs::exists(folder_ / "x.gguf"));
}

TEST_F(Store, AFurtherNameIsALinkThatOutlivesTheFirst) {
  write_file(folder_ / "quarrel/a.gguf", model_);
  const LinkedModel linked = store().add_name("a", "b.gguf");
  EXPECT_EQ(linked.path, folder_ / "quarrel/b.gguf");
  EXPECT_FALSE(linked.template_left);
  EXPECT_TRUE(fs::equivalent(folder_ / "quarrel/a.gguf", linked.path)) << "no bytes are copied";
  EXPECT_FALSE(fs::is_symlink(linked.path));
  store().remove("a");
  EXPECT_EQ(test::read_file(resolve("b").path), model_);
}

TEST_F(Store, AllPartsOfASplitModelGetTheName) {
  put_parts("quarrel/a", 2);
  EXPECT_EQ(store().add_name("a", "b").path, folder_ / "quarrel/b-00001-of-00002.gguf");
  EXPECT_EQ(test::read_file(folder_ / "quarrel/b-00002-of-00002.gguf"), toy_part(2, 2));
}

TEST_F(Store, ASplitModelIsLinkedWholeWhicheverPartIsNamed) {
  put_parts("x/big", 3);
  const WorkingFolder inside(folder_ / "x");
  for (std::uint32_t number = 1; number <= 3; ++number) {
    const std::string given = "big" + file_ending(number, 3);
    const std::string name = "m" + std::to_string(number);
    const fs::path path = store().add_name(given, name).path;
    EXPECT_EQ(path, folder_ / ("quarrel/" + name + "-00001-of-00003.gguf"));
    const GgufFile file = GgufFile::open(path);
    EXPECT_EQ(file.part_count(), 3U) << given;
    EXPECT_EQ(file.tensors().size(), 3U) << given;
    EXPECT_EQ(listed()[name].problem, "");
  }
}

TEST_F(Store, AMissingPartIsNamedAndNothingIsLinked) {
  put_parts("x/big", 3);
  fs::remove(folder_ / "x/big-00002-of-00003.gguf");
  for (const char* given : {"x/big-00001-of-00003.gguf", "x/big-00003-of-00003.gguf"}) {
    expect_error(ErrorKind::not_found, {"big-00002-of-00003.gguf"},
                 [&] { store().add_name((folder_ / given).string(), "m"); });
  }
  EXPECT_FALSE(fs::exists(folder_ / "quarrel"));

  put_parts("quarrel/big", 3);
  fs::remove(folder_ / "quarrel/big-00003-of-00003.gguf");
  expect_error(ErrorKind::not_found, {"big-00003-of-00003.gguf"}, [&] { store().add_name("big", "m"); });
  expect_error(ErrorKind::not_found, {"big-00003-of-00003.gguf"}, [&] { store().create("m", resolve("big"), {}); });
  EXPECT_EQ(listed().size(), 1U);
}

TEST_F(Store, WhatIsNoModelGetsNoName) {
  write_file(folder_ / "notes.txt", "these are notes, not a model");
  expect_error(ErrorKind::bad_file, {"notes.txt", "not a GGUF file"},
               [&] { store().add_name((folder_ / "notes.txt").string(), "x"); });
  EXPECT_FALSE(fs::exists(folder_ / "quarrel"));

  write_file(folder_ / "quarrel/a.gguf", model_);
  write_file(folder_ / "quarrel/broken.gguf", "these are notes, not a model");
  store().create("made", resolve("a"), {.system = "Old"});
  expect_error(ErrorKind::bad_file, {"broken"}, [&] { store().create("made", resolve("broken"), {.system = "New"}); });
  EXPECT_EQ(resolve("made").system, "Old");
  EXPECT_EQ(test::read_file(resolve("made").path), model_);
}

TEST_F(Store, FilesElsewhereAreLinkedBySymbolAndNothingIsWrittenThere) {
  const std::string parts = model_layer() + "," + layer("system", blob("be brief"), 8);
  put_manifest("r.example/library/m/latest", manifest(config(), parts));
  write_file(folder_ / "x.gguf", model_);
  EXPECT_TRUE(fs::is_symlink(store().add_name((folder_ / "x.gguf").string(), "mine").path));
  const LinkedModel theirs = store().add_name("m", "theirs");
  EXPECT_FALSE(theirs.template_left);
  EXPECT_EQ(resolve("theirs").system, "be brief") << "what Ollama keeps comes along";
  EXPECT_TRUE(fs::is_symlink(theirs.path));
  EXPECT_EQ(fs::hard_link_count(fs::canonical(theirs.path)), 1U);
  EXPECT_EQ(test::read_file(resolve("theirs").path), model_);
  EXPECT_EQ(store().remove("theirs").bytes, 0U);
  EXPECT_EQ(test::read_file(resolve("m").path), model_);
}

TEST_F(Store, ALinkWhoseFileIsGoneIsToldOfAndCanBeRemoved) {
  const fs::path source = folder_ / "x.gguf";
  write_file(source, model_);
  const fs::path link = store().add_name(source.string(), "mine").path;
  write_file(stamp_path(link), "stamp");
  write_file(settings_path(folder_ / "quarrel", "mine"), R"({"system": "Be brief."})");
  EXPECT_EQ(listed()["mine"].problem.find("is gone"), std::string::npos);
  fs::remove(source);

  const ListedModel mine = listed()["mine"];
  EXPECT_EQ(mine.problem, "its file '" + source.string() + "' is gone: run `quarrel rm mine`");
  EXPECT_FALSE(mine.usable);
  expect_error(ErrorKind::not_found, {"the model 'mine'", mine.problem}, [&] { resolve("mine"); });
  expect_error(ErrorKind::not_found, {"the model 'mine'", mine.problem}, [&] { store().resolve_name("mine"); });
  expect_error(ErrorKind::usage, {"folder without GGUF"}, [&] { resolve((folder_ / "quarrel").string()); });

  write_file(folder_ / "y.gguf", model_);
  expect_error(ErrorKind::usage, {"already exists", "`quarrel rm mine`"},
               [&] { store().add_name((folder_ / "y.gguf").string(), "mine"); });
  const RemovedModel removed = store().remove("mine");
  EXPECT_TRUE(removed.was_lost);
  EXPECT_EQ(removed.bytes, 0U);
  EXPECT_TRUE(fs::is_empty(folder_ / "quarrel"));
}

TEST_F(Store, APartWhoseFileIsGoneIsToldOf) {
  put_parts("x/big", 2);
  store().add_name((folder_ / "x/big-00001-of-00002.gguf").string(), "mine");
  fs::remove(folder_ / "x/big-00002-of-00002.gguf");
  EXPECT_NE(listed()["mine"].problem.find("big-00002-of-00002.gguf' is gone"), std::string::npos);
  EXPECT_FALSE(listed()["mine"].usable);
  store().remove("mine");
  EXPECT_TRUE(fs::is_empty(folder_ / "quarrel"));
}

TEST_F(Store, AModelOfTheTableWhoseFileIsGoneIsPulled) {
  fs::create_directory(folder_ / "quarrel");
  fs::create_symlink(folder_ / "absent", folder_ / "quarrel" / kDefaultFile);
  expect_error(ErrorKind::not_found, {"absent' is gone: run `quarrel pull default`"}, [&] { resolve("default"); });
}

TEST_F(Store, WhatANameWouldReplaceIsTold) {
  write_file(folder_ / "quarrel/Alpha.gguf", model_);
  write_file(folder_ / "quarrel" / kDefaultFile, model_);
  for (const char* name : {"Alpha", "alpha", "ALPHA.gguf"}) {
    EXPECT_EQ(store().replaced_names(name), std::vector<std::string>{"Alpha"}) << name;
  }
  EXPECT_EQ(store().replaced_names("smollm2-135m-instruct.q4_1"),
            (std::vector<std::string>{"SmolLM2-135M-Instruct.Q4_1", "default"}));
  EXPECT_TRUE(store().replaced_names("beta").empty());
}

TEST_F(Store, ANewNameMustBeOneAndBeFree) {
  write_file(folder_ / "quarrel/a.gguf", model_);
  write_file(folder_ / "quarrel/Taken.gguf", model_);
  for (const std::string& name :
       {std::string(), std::string(".hidden"), std::string("-n"), std::string("x/../y"), std::string("../x"),
        std::string("a:"), std::string("a:b:c"), std::string("/x"), std::string("http://h/x/y"), std::string("a\nb"),
        std::string("default"), std::string("taken"), std::string(".gguf"), std::string(201, 'x')}) {
    const auto thrown = test::thrown_by([&] { store().add_name("a", name); });
    ASSERT_TRUE(thrown.happened) << name;
    EXPECT_EQ(thrown.kind, ErrorKind::usage) << thrown.message;
  }
  expect_error(ErrorKind::usage, {"already exists"}, [&] { store().add_name("a", "taken"); });
  expect_error(ErrorKind::not_found, {"'absent'"}, [&] { store().add_name("absent", "b"); });
  EXPECT_EQ(listed().size(), 2U);
}

TEST_F(Store, NamesMayHaveANamespaceAndATag) {
  write_file(folder_ / "quarrel/a.gguf", model_);
  EXPECT_EQ(store().add_name("a", "me/thing:v2").path, folder_ / "quarrel/me%2Fthing:v2.gguf");
  EXPECT_EQ(resolve("me/thing:v2").name, "me/thing:v2");
  EXPECT_EQ(store().resolve_name("Me/Thing:V2").place, ModelPlace::quarrel);
  EXPECT_TRUE(listed().contains("me/thing:v2"));
  EXPECT_EQ(store().remove("me/thing:v2").name, "me/thing:v2");
  EXPECT_EQ(listed().size(), 1U);
}

TEST_F(Store, NamesAloneAreNoPaths) {
  write_file(folder_ / "x.gguf", model_);
  write_file(folder_ / "quarrel/a.gguf", model_);
  EXPECT_EQ(resolve((folder_ / "x.gguf").string()).place, ModelPlace::file);
  for (const std::string& name : {(folder_ / "x.gguf").string(), (folder_ / "quarrel/a.gguf").string(),
                                  std::string("../x.gguf"), std::string("./quarrel/a.gguf"), std::string()}) {
    expect_error(ErrorKind::not_found, {}, [&] { store().resolve_name(name); });
  }
}

TEST_F(Store, AMadeModelHasTheWeightsOfAnotherAndSettingsOfItsOwn) {
  write_file(folder_ / "quarrel/a.gguf", model_);
  write_stamp(folder_ / "quarrel/a.gguf", sha256(model_));
  const StoredSettings pirate{.from = "a", .system = "Arr", .params = R"({"temperature":0.5})"};
  const fs::path path = store().create("pirate:v1", resolve("a"), pirate);
  EXPECT_TRUE(fs::equivalent(path, folder_ / "quarrel/a.gguf"));
  EXPECT_EQ(known_digest(path), sha256(model_));
  const ResolvedModel made = resolve("pirate:v1");
  EXPECT_EQ(made.system, "Arr");
  EXPECT_EQ(made.params, pirate.params);
  EXPECT_FALSE(resolve("a").system);

  // Once more: the settings are others, the weights may be too.
  store().create("pirate:v1", made, {.system = "Ahoy"});
  EXPECT_EQ(resolve("pirate:v1").system, "Ahoy");
  EXPECT_FALSE(resolve("pirate:v1").params);
  write_file(folder_ / "quarrel/b.gguf", model_ + "b");
  store().create("PIRATE:v1", resolve("b"), {});
  EXPECT_EQ(test::read_file(resolve("pirate:v1").path), model_ + "b");
  EXPECT_FALSE(resolve("pirate:v1").system);
  EXPECT_EQ(test::read_file(resolve("a").path), model_) << "the name that it had the weights of keeps them";

  store().create("pirate:v1", resolve("a"), pirate);
  store().add_name("pirate:v1", "copy");
  EXPECT_EQ(resolve("copy").system, "Arr");
  store().remove("pirate:v1");
  store().remove("copy");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "quarrel"), fs::directory_iterator()), 3)
      << "two models and a stamp";
  expect_error(ErrorKind::usage, {"default", "reserved for `quarrel pull`"},
               [&] { store().create("default", resolve("a"), {}); });
  expect_error(ErrorKind::usage, {"x/../y"}, [&] { store().create("x/../y", resolve("a"), {}); });
}

TEST_F(Store, AModelWithBrokenSettingsIsListedWithItsProblem) {
  write_file(folder_ / "quarrel/a.gguf", model_);
  write_file(folder_ / "quarrel/a.settings.json", "{");
  EXPECT_NE(listed()["a"].problem.find("settings"), std::string::npos);
  EXPECT_FALSE(listed()["a"].usable);
  expect_error(ErrorKind::bad_file, {"settings"}, [&] { resolve("a"); });
}

}  // namespace
}  // namespace quarrel

// Finding and listing models by path and by name, in a made-up Quarrel store and a made-up Ollama store.
#include "store/store.h"

#include <gtest/gtest.h>

#include <map>

#include "base/sha256.h"
#include "store/model_description.h"
#include "store/ollama_store.h"
#include "store/own_store.h"
#include "unit/store_support.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::kDefaultFile;
using test::write_file;

class Store : public test::StoreFixture {};

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

// A name of the table is that of what `pull` gets, wherever a file comes from.
TEST_F(Store, WhatIsListedIsFoundByThatName) {
  for (const char* file :
       {"default.gguf", "minilm-00001-of-00002.gguf", "minilm-00002-of-00002.gguf", "Default.gguf"}) {
    write_file(folder_ / "quarrel" / file, model_);
  }
  std::vector<std::string> names;
  for (const auto& [name, model] : listed()) {
    names.push_back(name);
    EXPECT_EQ(resolve(name).name, name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"Default", "default.gguf", "minilm-00001-of-00002.gguf"}));
  EXPECT_EQ(resolve("default.gguf").path, folder_ / "quarrel/default.gguf");
  EXPECT_THROW(resolve("default"), Error);
  write_file(folder_ / "quarrel" / kDefaultFile, model_);
  EXPECT_EQ(resolve("default").path, folder_ / "quarrel" / kDefaultFile);
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

}  // namespace
}  // namespace quarrel

// Removing models, further names for them, and models made of others, in made-up stores.
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "gguf/file.h"
#include "store/model_description.h"
#include "store/own_store.h"
#include "store/store.h"
#include "unit/store_support.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::kDefaultFile;
using test::toy_part;
using test::write_file;

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

class StoreNames : public test::StoreFixture {};

TEST_F(StoreNames, RemovesModelsOfItsOwn) {
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

TEST_F(StoreNames, RemovesNothingElse) {
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

TEST_F(StoreNames, AFurtherNameIsALinkThatOutlivesTheFirst) {
  write_file(folder_ / "quarrel/a.gguf", model_);
  const LinkedModel linked = store().add_name("a", "b.gguf");
  EXPECT_EQ(linked.path, folder_ / "quarrel/b.gguf");
  EXPECT_FALSE(linked.template_left);
  EXPECT_TRUE(fs::equivalent(folder_ / "quarrel/a.gguf", linked.path)) << "no bytes are copied";
  EXPECT_FALSE(fs::is_symlink(linked.path));
  store().remove("a");
  EXPECT_EQ(test::read_file(resolve("b").path), model_);
}

// A server judges the name and the store uses it: both must mean the same one.
TEST_F(StoreNames, AFurtherNameIsTheSameHoweverOftenItIsRead) {
  for (const char* name : {"polly", "polly.gguf", "polly.gguf.gguf", "polly.gguf.gguf.gguf"}) {
    EXPECT_EQ(ModelStore::further_name(name), "polly");
  }
}

TEST_F(StoreNames, AllPartsOfASplitModelGetTheName) {
  put_parts("quarrel/a", 2);
  EXPECT_EQ(store().add_name("a", "b").path, folder_ / "quarrel/b-00001-of-00002.gguf");
  EXPECT_EQ(test::read_file(folder_ / "quarrel/b-00002-of-00002.gguf"), toy_part(2, 2));
}

TEST_F(StoreNames, ASplitModelIsLinkedWholeWhicheverPartIsNamed) {
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

TEST_F(StoreNames, AMissingPartIsNamedAndNothingIsLinked) {
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

TEST_F(StoreNames, WhatIsNoModelGetsNoName) {
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

TEST_F(StoreNames, FilesElsewhereAreLinkedBySymbolAndNothingIsWrittenThere) {
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

TEST_F(StoreNames, ALinkWhoseFileIsGoneIsToldOfAndCanBeRemoved) {
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

TEST_F(StoreNames, APartWhoseFileIsGoneIsToldOf) {
  put_parts("x/big", 2);
  store().add_name((folder_ / "x/big-00001-of-00002.gguf").string(), "mine");
  fs::remove(folder_ / "x/big-00002-of-00002.gguf");
  EXPECT_NE(listed()["mine"].problem.find("big-00002-of-00002.gguf' is gone"), std::string::npos);
  EXPECT_FALSE(listed()["mine"].usable);
  store().remove("mine");
  EXPECT_TRUE(fs::is_empty(folder_ / "quarrel"));
}

TEST_F(StoreNames, AModelOfTheTableWhoseFileIsGoneIsPulled) {
  fs::create_directory(folder_ / "quarrel");
  fs::create_symlink(folder_ / "absent", folder_ / "quarrel" / kDefaultFile);
  expect_error(ErrorKind::not_found, {"absent' is gone: run `quarrel pull default`"}, [&] { resolve("default"); });
}

TEST_F(StoreNames, WhatANameWouldReplaceIsTold) {
  write_file(folder_ / "quarrel/Alpha.gguf", model_);
  write_file(folder_ / "quarrel" / kDefaultFile, model_);
  for (const char* name : {"Alpha", "alpha", "ALPHA.gguf"}) {
    EXPECT_EQ(store().replaced_names(name), std::vector<std::string>{"Alpha"}) << name;
  }
  EXPECT_EQ(store().replaced_names("smollm2-135m-instruct.q4_1"),
            (std::vector<std::string>{"SmolLM2-135M-Instruct.Q4_1", "default"}));
  EXPECT_TRUE(store().replaced_names("beta").empty());

  // A model of Quarrel's own store goes before Ollama's of the same name, in whatever letters.
  put_model("r.example/library/mistral/7b");
  put_model("r.example/me/Mine/latest");
  EXPECT_EQ(store().replaced_names("Mistral:7B"), std::vector<std::string>{"mistral:7b"});
  EXPECT_EQ(store().replaced_names("ME/mine"), std::vector<std::string>{"me/Mine"});
  EXPECT_EQ(store().replaced_names("R.example/ME/mine:Latest"), std::vector<std::string>{"r.example/me/Mine:latest"});
  EXPECT_TRUE(store().replaced_names("mistral").empty()) << "that is another tag";
}

TEST_F(StoreNames, TheFileOfAPulledModelHasItsNameBeforeItIsThere) {
  for (const char* name : {"SmolLM2-135M-Instruct.Q4_1", "smollm2-135m-instruct.q4_1"}) {
    EXPECT_EQ(store().replaced_names(name), std::vector<std::string>{"default"}) << name;
  }
  write_file(folder_ / "quarrel/smollm2-135m-instruct.Q4_1.gguf", model_);
  EXPECT_EQ(store().replaced_names("SmolLM2-135M-Instruct.Q4_1"),
            (std::vector<std::string>{"smollm2-135m-instruct.Q4_1", "default"}));
  write_file(folder_ / "quarrel" / kDefaultFile, model_);
  EXPECT_EQ(store().replaced_names("smollm2-135m-instruct.Q4_1"),
            std::vector<std::string>{"smollm2-135m-instruct.Q4_1"})
      << "the other one is called default";

  // A model may be called what that file is.
  fs::remove_all(folder_ / "quarrel");
  const std::string file = std::string(kDefaultFile);
  write_file(folder_ / "quarrel" / (file + ".gguf"), model_);
  EXPECT_EQ(resolve(file).name, file);
  expect_error(ErrorKind::not_found, {"`quarrel pull default`"}, [&] { resolve("default"); });
}

TEST_F(StoreNames, OfTwoSpellingsTheExactOneIsMeant) {
  write_file(folder_ / "quarrel/Alpha.gguf", model_);
  write_file(folder_ / "quarrel/alpha.gguf", model_ + "small");
  write_file(folder_ / "quarrel/Alpha.gguf.gguf", model_ + "long");
  EXPECT_EQ(resolve("Alpha").name, "Alpha");
  EXPECT_EQ(resolve("alpha").name, "alpha");
  EXPECT_EQ(store().resolve_name("Alpha.gguf").name, "Alpha.gguf");
  EXPECT_EQ(store().resolve_name("alpha.gguf").name, "alpha");
  EXPECT_EQ(resolve("ALPHA").name, "Alpha") << "the first";
  EXPECT_EQ(store().replaced_names("alpha"), std::vector<std::string>{"alpha"});
  EXPECT_EQ(store().remove("alpha").name, "alpha");
  EXPECT_TRUE(fs::exists(folder_ / "quarrel/Alpha.gguf"));
}

// It would be found as a part, and its file might be that of another model.
TEST_F(StoreNames, NoNameIsThatOfAPart) {
  put_parts("quarrel/big", 2);
  write_file(folder_ / "quarrel/a.gguf", model_);
  write_file(folder_ / "quarrel/.new", model_);
  for (const char* name :
       {"big-00001-of-00002", "big-00002-of-00002.gguf", "c-00001-of-00003", "me/c:1-00001-of-00001"}) {
    const std::vector<std::string> words{"cannot have the name", "part of another model"};
    expect_error(ErrorKind::usage, words, [&] { store().add_name("a", name); });
    expect_error(ErrorKind::usage, words, [&] { store().create(name, resolve("a"), {}); });
    expect_error(ErrorKind::usage, words, [&] { store().adopt(name, folder_ / "quarrel/.new", "", {}); });
    expect_error(ErrorKind::usage, words, [&] { ModelStore::check_model_name(name); });
  }
  for (std::uint32_t number = 1; number <= 2; ++number) {
    EXPECT_EQ(test::read_file(folder_ / ("quarrel/big" + file_ending(number, 2))), toy_part(number, 2));
  }
  EXPECT_EQ(listed().size(), 2U);
  store().add_name("a", "c-00004-of-00003");
  EXPECT_EQ(resolve("c-00004-of-00003").path, folder_ / "quarrel/c-00004-of-00003.gguf") << "no part has such a number";
}

TEST_F(StoreNames, WhatIsReplacedLeavesNoFile) {
  put_parts("quarrel/big", 2);
  const fs::path old = folder_ / "quarrel/a.gguf";
  write_file(old, model_);
  write_stamp(old, sha256(model_));
  EXPECT_EQ(store().create("A", resolve("big"), {}), folder_ / "quarrel/a-00001-of-00002.gguf");
  EXPECT_FALSE(fs::exists(old));
  EXPECT_FALSE(fs::exists(stamp_path(old)));
  EXPECT_EQ(GgufFile::open(resolve("a").path).part_count(), 2U);

  const fs::path alone = folder_ / "quarrel/b-00001-of-00001.gguf";
  for (const bool adopted : {false, true}) {
    write_file(alone, model_ + "old");
    write_file(folder_ / "quarrel/.new", model_);
    write_file(folder_ / "quarrel/c.gguf", model_);
    if (adopted) {
      store().adopt("b", folder_ / "quarrel/.new", sha256(model_), {});
    } else {
      store().create("b", resolve("c"), {});
    }
    EXPECT_FALSE(fs::exists(alone)) << adopted;
    EXPECT_EQ(test::read_file(resolve("b").path), model_) << adopted;
    store().remove("b");
  }
}

// A file's name is as good as the model's, which may mean another one: that must not go in its place.
TEST_F(StoreNames, WhatIsCalledByItsFileReplacesNoOther) {
  const auto expect_refusal = [&](const std::string& name, const std::string& word) {
    write_file(folder_ / "quarrel/.new", model_);
    expect_error(ErrorKind::usage, {word}, [&] { store().create(name, resolve("c"), {}); });
    expect_error(ErrorKind::usage, {word}, [&] { store().adopt(name, folder_ / "quarrel/.new", "", {}); });
  };
  write_file(folder_ / "quarrel/c.gguf", model_);
  const fs::path pulled = folder_ / "quarrel" / kDefaultFile;
  write_file(pulled, model_ + "pulled");
  write_file(folder_ / "quarrel/default.gguf", model_);
  expect_refusal("default.gguf", "reserved for `quarrel pull`");
  EXPECT_TRUE(fs::exists(pulled));

  put_parts("quarrel/x", 2);
  write_file(folder_ / "quarrel/x.gguf", model_);
  expect_refusal("x.gguf", "several parts");
  EXPECT_TRUE(fs::exists(folder_ / "quarrel/x-00001-of-00002.gguf"));
  EXPECT_TRUE(fs::exists(folder_ / "quarrel/x.gguf"));
}

TEST_F(StoreNames, ANewNameMustBeOneAndBeFree) {
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

TEST_F(StoreNames, NamesMayHaveANamespaceAndATag) {
  write_file(folder_ / "quarrel/a.gguf", model_);
  EXPECT_EQ(store().add_name("a", "me/thing:v2").path, folder_ / "quarrel/me%2Fthing:v2.gguf");
  EXPECT_EQ(resolve("me/thing:v2").name, "me/thing:v2");
  EXPECT_EQ(store().resolve_name("Me/Thing:V2").place, ModelPlace::quarrel);
  EXPECT_TRUE(listed().contains("me/thing:v2"));
  EXPECT_EQ(store().remove("me/thing:v2").name, "me/thing:v2");
  EXPECT_EQ(listed().size(), 1U);
}

TEST_F(StoreNames, NamesAloneAreNoPaths) {
  write_file(folder_ / "x.gguf", model_);
  write_file(folder_ / "quarrel/a.gguf", model_);
  EXPECT_EQ(resolve((folder_ / "x.gguf").string()).place, ModelPlace::file);
  for (const std::string& name : {(folder_ / "x.gguf").string(), (folder_ / "quarrel/a.gguf").string(),
                                  std::string("../x.gguf"), std::string("./quarrel/a.gguf"), std::string()}) {
    expect_error(ErrorKind::not_found, {}, [&] { store().resolve_name(name); });
  }
}

TEST_F(StoreNames, AMadeModelHasTheWeightsOfAnotherAndSettingsOfItsOwn) {
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

TEST_F(StoreNames, AModelWithBrokenSettingsIsListedWithItsProblem) {
  write_file(folder_ / "quarrel/a.gguf", model_);
  write_file(folder_ / "quarrel/a.settings.json", "{");
  EXPECT_NE(listed()["a"].problem.find("settings"), std::string::npos);
  EXPECT_FALSE(listed()["a"].usable);
  expect_error(ErrorKind::bad_file, {"settings"}, [&] { resolve("a"); });
}

}  // namespace
}  // namespace quarrel

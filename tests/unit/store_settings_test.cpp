// What a store keeps beside the weights, and the texts that say it.
#include <gtest/gtest.h>

#include "store/modelfile.h"
#include "store/stored_settings.h"
#include "support/temp_dir.h"
#include "unit/gguf_support.h"

namespace quarrel {
namespace {

using test::expect_error;
using test::TempDir;
using test::write_file;

TEST(StoredSettings, ComeBackAsTheyWere) {
  const TempDir folder;
  const auto path = folder / "a.settings.json";
  EXPECT_TRUE(read_settings(path).empty());
  const StoredSettings settings{.from = "b",
                                .system = "be \"brief\"\n",
                                .template_text = "{{ messages }}",
                                .params = R"({"stop":["a","b"],"temperature":0.2})",
                                .license = "MIT"};
  write_settings(path, settings);
  const StoredSettings found = read_settings(path);
  EXPECT_EQ(found.from, settings.from);
  EXPECT_EQ(found.system, settings.system);
  EXPECT_EQ(found.template_text, settings.template_text);
  EXPECT_EQ(found.params, settings.params);
  EXPECT_EQ(found.license, settings.license);
  write_settings(path, {});
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(StoredSettings, DamagedOnesAreRefused) {
  const TempDir folder;
  const auto path = folder / "a.settings.json";
  for (const std::string& text : {std::string("{"), std::string("[]"), std::string(R"({"system":1})"),
                                  std::string(R"({"parameters":[1]})"), std::string(100, '[')}) {
    write_file(path, text);
    expect_error(ErrorKind::bad_file, {"settings"}, [&] { read_settings(path); });
  }
  write_file(path, std::string((8u << 20) + 1, ' '));
  expect_error(ErrorKind::bad_file, {"too large"}, [&] { read_settings(path); });
}

TEST(StoredSettings, GoTemplatesAreKnown) {
  for (const char* text : {"{{ .Prompt }}", "{{- if .System }}a{{ end }}", "{{range .Messages}}", "{{- $last := 1 }}",
                           "a {{ .System }} b", "{{- range $i, $_ := .Messages }}", "{{/* a comment */}}"}) {
    EXPECT_TRUE(is_go_template(text)) << text;
  }
  for (const char* text : {"", "plain", "{{ messages[0].content }}", "{% if messages %}{{ bos_token }}{% endif %}",
                           "{{- '{{ x }}' }}", "{{ ifs }}", "{{ .5 }}", "{{", "{{ endings }}", "{# {{ }} #}"}) {
    EXPECT_FALSE(is_go_template(text)) << text;
  }
}

TEST(Modelfiles, AreReadLineByLine) {
  const Modelfile file = read_modelfile(
      "# a pirate\r\nFROM toy\n\nparameter temperature 0.5\nPARAMETER stop \"<end>\"\nPARAMETER stop x y \n"
      "SYSTEM \"\"\"You are\na pirate.\"\"\"\nTEMPLATE {{ messages }}\nLICENSE one\nLICENSE two");
  EXPECT_EQ(file.from, "toy");
  EXPECT_EQ(file.system, "You are\na pirate.");
  EXPECT_EQ(file.template_text, "{{ messages }}");
  EXPECT_EQ(file.license, "one\ntwo");
  const std::vector<std::pair<std::string, std::string>> parameters = {
      {"temperature", "0.5"}, {"stop", "<end>"}, {"stop", "x y"}};
  EXPECT_EQ(file.parameters, parameters);
  EXPECT_EQ(read_modelfile("").from, "");
}

TEST(Modelfiles, WhatIsWrongIsNamedWithItsLine) {
  expect_error(ErrorKind::bad_input, {"line 2", "frm"}, [] { read_modelfile("\nFRM toy"); });
  expect_error(ErrorKind::bad_input, {"line 2", "twice"}, [] { read_modelfile("FROM a\nFROM b"); });
  expect_error(ErrorKind::bad_input, {"line 1", "not closed"}, [] { read_modelfile("SYSTEM \"\"\"a\nb"); });
  expect_error(ErrorKind::bad_input, {"after its closing quote"}, [] { read_modelfile("SYSTEM \"a\" b"); });
  expect_error(ErrorKind::bad_input, {"no value"}, [] { read_modelfile("FROM \nSYSTEM a"); });
  expect_error(ErrorKind::unsupported, {"line 1", "adapter"}, [] { read_modelfile("ADAPTER ./x"); });
}

}  // namespace
}  // namespace quarrel

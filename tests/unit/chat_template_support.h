// What the chat template tests share: the real templates of the test data, and rendering as they were rendered.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/chat_template.h"

namespace quarrel {

using Json = nlohmann::ordered_json;

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(QUARREL_TEST_DATA) / "template")) {
    if (entry.path().extension() == ".jinja") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string golden_source(const std::string& name) {
  return read_text(std::filesystem::path(QUARREL_TEST_DATA) / "template" / (name + ".jinja"));
}

inline Json golden_cases(const std::string& name) {
  return Json::parse(read_text(std::filesystem::path(QUARREL_TEST_DATA) / "template" / (name + ".json")));
}

// A case's input with what every golden rendering was given besides.
inline Json golden_variables(const Json& input) {
  Json variables = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"add_generation_prompt", true}, {"tools", nullptr}};
  for (const auto& [key, value] : input.items()) variables[key] = value;
  return variables;
}

inline const TemplateClock kGoldenClock{2026, 11, 15, 0, 0, 0};

// The rendered text, or "error: " and the message.
inline std::string render_or_error(const std::string& source, const Json& variables,
                                   const TemplateLimits& limits = {}) {
  try {
    return ChatTemplate::compile(source, limits).render(variables, kGoldenClock).text;
  } catch (const Error& error) {
    return std::string("error: ") + error.what();
  }
}

}  // namespace quarrel

// Runs the checks of a regression suite on one model after the other. A model that cannot be loaded is a miss like any
// other, so that one broken file does not hide what the rest would show; an optional one that is absent is skipped. One
// thread.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "app/model_options.h"
#include "app/regress_suite.h"
#include "app/terminal.h"
#include "base/log.h"

namespace quarrel {

struct CheckResult {
  std::string model = {};
  std::string check = {};    // "answer", "logits", "perplexity", or "load" where it did not come to that
  std::string subject = {};  // the prompt's name, the file or the tokens that it was about
  bool passed = false;
  bool skipped = false;                 // the model is optional and absent: neither passed nor missed
  std::string summary = {};             // one line for people
  nlohmann::ordered_json details = {};  // the numbers and limits
  double seconds = 0.0;
};

using ResultSink = std::function<void(const CheckResult&)>;

struct RegressContext {
  ModelOptions options;          // of the command line; checks may replace some
  std::filesystem::path folder;  // where the suite lies: models may lie there too
  Log& log;
  const Interrupts& interrupts;
};

// Calls `sink` with each result as it comes. Throws Error(cancelled) on Ctrl-C and nothing else that a model or a file
// could cause.
void run_checks(const SuiteModel& model, const Suite& suite, const RegressContext& context, const ResultSink& sink);

}  // namespace quarrel

// What the commands that measure and compare models share: opening a model that may have no vocabulary, the row class
// as an option, Ctrl-C. Used on the main thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "app/model_options.h"
#include "app/terminal.h"
#include "base/log.h"
#include "gguf/file.h"
#include "session/loaded_model.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quarrel {

// A path or a name of a store. Throws what ModelStore::resolve and GgufFile::open throw.
GgufFile open_model_file(const std::string& model);

// The model that the name and the options mean; `load.executor` says what else is wanted of it. No chat template.
// Throws what the above and LoadedModel::load throw.
std::shared_ptr<LoadedModel> load_model(const std::string& model, const ModelOptions& options, LoadOptions load,
                                        Log& log);
// The same of a file that is open already; and on a device that others share.
std::shared_ptr<LoadedModel> load_model(GgufFile file, const ModelOptions& options, LoadOptions load, Log& log);
std::shared_ptr<LoadedModel> load_model(GgufFile file, std::shared_ptr<Device> device, LoadOptions load, Log& log);

// "prompt" or "generated"; other values are refused when the command line is parsed.
CLI::Option* add_class_option(CLI::App& command, std::string& value);
RowClass row_class_of(const std::string& value);  // throws Error(usage)

// "cpu (avx2, 2 threads)" is one line to a person; these are the words of the other settings.
const char* name_of(KvType type) noexcept;

// Throws Error(cancelled) once Ctrl-C was pressed: called between steps.
void check_interrupt(const Interrupts& interrupts);
// Runs a command's work with Ctrl-C caught; the work's exit code, or kInterruptedExit once check_interrupt() threw.
int run_interruptible(const std::function<int(const Interrupts&)>& work);

}  // namespace quarrel

#include "app/workbench.h"

#include <CLI/CLI.hpp>

#include "app/value_checks.h"
#include "base/error.h"
#include "base/printable.h"
#include "store/store.h"

namespace quarrel {

GgufFile open_model_file(const std::string& model) {
  return GgufFile::open(ModelStore(StorePaths::from_environment()).resolve(model).path);
}

std::shared_ptr<LoadedModel> load_model(const std::string& model, const ModelOptions& options, LoadOptions load,
                                        Log& log) {
  return load_model(open_model_file(model), options, std::move(load), log);
}

std::shared_ptr<LoadedModel> load_model(GgufFile file, const ModelOptions& options, LoadOptions load, Log& log) {
  return load_model(std::move(file), open_device(options, log), std::move(load), log);
}

std::shared_ptr<LoadedModel> load_model(GgufFile file, std::shared_ptr<Device> device, LoadOptions load, Log& log) {
  load.chat_template.kind = TemplateSelection::Kind::none;
  ResolvedModel known;
  known.path = file.path();
  known.name = file.path().stem().string();
  auto model = LoadedModel::load(std::move(file), known, std::move(device), load, log);
  warn_of_unused(load.executor, model->executor().plan(), log);
  return model;
}

CLI::Option* add_class_option(CLI::App& command, std::string& value) {
  return command.add_option("--class", value, "Which arithmetic: that of prompt rows or of generated rows")
      ->check(one_of({"prompt", "generated"}))
      ->type_name("CLASS")
      ->capture_default_str();
}

RowClass row_class_of(const std::string& value) {
  if (value == "prompt") return RowClass::prompt;
  if (value == "generated") return RowClass::generated;
  fail(ErrorKind::usage, "the class of rows is prompt or generated, not '{}'", printable(value));
}

const char* name_of(KvType type) noexcept { return type == KvType::f32 ? "f32" : "f16"; }

void check_interrupt(const Interrupts& interrupts) {
  if (interrupts.requested().load(std::memory_order_relaxed)) fail(ErrorKind::cancelled, "interrupted");
}

int run_interruptible(const std::function<int(const Interrupts&)>& work) {
  const Interrupts interrupts;
  try {
    return work(interrupts);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::cancelled) throw;
    write_error("interrupted\n");
    return kInterruptedExit;
  }
}

}  // namespace quarrel

#include "app/workbench.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/printable.h"
#include "store/store.h"

namespace quarrel {

GgufFile open_model_file(const std::string& model) {
  return GgufFile::open(ModelStore(StorePaths::from_environment()).resolve(model).path);
}

std::unique_ptr<Tokenizer> load_tokenizer_if_any(const GgufFile& file, Log& log) {
  if (file.find("tokenizer.ggml.tokens") == nullptr) return nullptr;
  return Tokenizer::load(file, log);
}

void require_logits(const ModelSpec& spec) {
  if (!spec.has_head) {
    fail(ErrorKind::unsupported, "this model ({}) embeds texts; it foretells no tokens", printable(spec.architecture));
  }
}

CLI::Option* add_class_option(CLI::App& command, std::string& value) {
  return command.add_option("--class", value, "Whose arithmetic: that of prompt or of generated rows")
      ->check(CLI::IsMember({"prompt", "generated"}))
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

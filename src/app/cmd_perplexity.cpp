// `quarrel perplexity`: how well a model predicts a text; the number that tells whether its arithmetic is sound.
#include <fmt/format.h>

#include <chrono>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/input.h"
#include "app/model_options.h"
#include "app/perplexity.h"
#include "app/token_list.h"
#include "app/value_checks.h"
#include "app/workbench.h"
#include "base/counted.h"

namespace quarrel {
namespace {

struct PerplexityCommand {
  std::string model;
  ModelOptions options;
  std::string file;
  std::int32_t window = 512;
  std::int32_t windows = 0;
  std::string row_class = "prompt";
  bool json = false;
};

// The running value on standard error: a line that is rewritten on a terminal, elsewhere a line every ten seconds.
class ProgressLine {
 public:
  ProgressLine() : terminal_(moves_cursor(Stream::error)) {}
  ~ProgressLine() { finish(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const Perplexity& result, std::int32_t windows) {
    const auto done = static_cast<std::int32_t>(result.windows.size());
    const std::string line =
        fmt::format("window {} of {}: {:.4f} ± {:.4f}", done, windows, result.value(), result.error());
    if (terminal_) {
      write_error("\r" + line + "\x1b[K");
      open_ = true;
    } else if (const auto now = Clock::now(); !told_ || now - *told_ >= kPlainEvery) {
      write_error(line + "\n");
      told_ = now;
    }
  }

  void finish() {
    if (open_) write_error("\n");
    open_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPlainEvery{10};
  const bool terminal_;
  std::optional<Clock::time_point> told_;  // when the last plain line was written
  bool open_ = false;
};

nlohmann::ordered_json to_json(const Perplexity& result, const PerplexityCommand& command, const LoadedModel& model,
                               double seconds) {
  return {{"perplexity", result.value()},
          {"error", result.error()},
          {"mean_loss", result.loss.mean()},
          {"scored_tokens", result.loss.count()},
          {"window", command.window},
          {"windows", result.windows},
          {"backend", model.device().name()},
          {"kv", name_of(model.executor().kv_type())},
          {"activations", model.device().activations_used(model.executor().plan().activations)},
          {"class", command.row_class},
          {"seconds", seconds}};
}

int run_perplexity(const PerplexityCommand& command, Log& log, const Interrupts& interrupts) {
  const std::string text = read_input(command.file);
  const auto model = load_model(command.model, command.options, {.executor = executor_options(command.options)}, log);
  model->require_generation();
  check_fits_context(command.window, model->context(), ErrorKind::usage);
  const Tokenizer& tokenizer = model->require_tokenizer();
  const std::vector<TokenId> tokens = perplexity_tokens(tokenizer, text);
  check_token_ids(tokens, model->spec().vocabulary);

  const auto start = std::chrono::steady_clock::now();
  ProgressLine progress;
  const Perplexity result = measure_perplexity(
      tokens, {.window = command.window, .windows = command.windows, .bos = window_bos(tokenizer)},
      model_scorer(model, row_class_of(command.row_class)), [&](const Perplexity& so_far, std::int32_t windows) {
        progress.show(so_far, windows);
        check_interrupt(interrupts);
      });
  progress.finish();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (command.json) {
    write_output(dump_json(to_json(result, command, *model, seconds)) + "\n");
  } else {
    write_output(fmt::format("perplexity {:.4f} ± {:.4f} ({} of {})\n", result.value(), result.error(),
                             counted(result.windows.size(), "window"), command.window));
  }
  return 0;
}

}  // namespace

void add_perplexity(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<PerplexityCommand>();
  CLI::App* command = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
  command->add_option("MODEL", options->model, "A GGUF file or the name of a model")->required();
  command->add_option("--file,-f", options->file, "The text; -: standard input")->required()->type_name("FILE");
  command->add_option("--window", options->window, "Tokens per window; the second half of each is scored")
      ->check(whole_number(kSmallestWindow, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--windows", options->windows, "How many windows at most; 0: the whole text")
      ->check(whole_number(0, 1 << 24))
      ->type_name("N")
      ->capture_default_str();
  add_class_option(*command, options->row_class);
  command->add_flag("--json", options->json, "The result and each window's own as JSON");
  add_model_options(*command, options->options);
  command->footer("Example:\n  quarrel perplexity default --file text.txt --windows 40");
  command->callback([options, &context] {
    context.run = [options, &context] {
      return run_interruptible(
          [&](const Interrupts& interrupts) { return run_perplexity(*options, context.log, interrupts); });
    };
  });
}

}  // namespace quarrel

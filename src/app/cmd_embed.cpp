// `quarrel embed`: texts or token ids to vectors.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/embed_to.h"
#include "app/input.h"
#include "app/model_options.h"
#include "app/progress_bar.h"
#include "app/text_argument.h"
#include "app/token_list.h"
#include "app/value_checks.h"
#include "app/vector_writer.h"
#include "app/workbench.h"
#include "base/error.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "session/embedding.h"

namespace quarrel {
namespace {

constexpr std::size_t kMostTexts = std::size_t{1} << 22;
// Texts whose vectors are held at once: enough to find many of like length, little enough for any memory.
constexpr std::size_t kTextsAtOnce = 1024;
constexpr std::size_t kTextsWithProgress = 64;

struct EmbedCommand {
  std::string model;
  ModelOptions options;
  std::vector<std::string> texts;
  std::string file;
  std::vector<std::string> tokens;
  std::string normalize = "on";
  std::string pooling;
  std::optional<std::int32_t> dimensions;
  std::string format = "json";
  std::string out;
  EmbedToCommand to;
};

std::optional<Pooling> pooling_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "none") return Pooling::none;
  if (name == "mean") return Pooling::mean;
  if (name == "cls") return Pooling::cls;
  if (name == "last") return Pooling::last;
  if (name == "rank") return Pooling::rank;
  fail(ErrorKind::usage, "the pooling is none, mean, cls, last or rank, not '{}'", printable(name));
}

// A text a line. A last line need not end; what stands before the line's end is the text, whatever its bytes are.
void append_lines(std::string_view input, std::vector<std::string>& texts) {
  while (!input.empty()) {
    const std::size_t end = input.find('\n');
    std::string_view line = input.substr(0, end);
    input.remove_prefix(end == std::string_view::npos ? input.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (texts.size() == kMostTexts) fail(ErrorKind::bad_input, "there are more than {} texts", kMostTexts);
    texts.emplace_back(line);
  }
}

// The texts in the order they were given: the arguments, with standard input where `-` stands, then the file's lines.
std::vector<std::string> read_texts(const EmbedCommand& command) {
  std::vector<std::string> texts;
  for (const std::string& text : command.texts) {
    if (text == "-") {
      append_lines(read_standard_input(), texts);
    } else {
      texts.push_back(text);
    }
  }
  if (!command.file.empty()) append_lines(read_input(command.file), texts);
  if (texts.empty()) fail(ErrorKind::bad_input, "there is no text: what was read has no lines");
  return texts;
}

std::vector<std::vector<TokenId>> read_token_lists(const std::vector<std::string>& arguments) {
  std::vector<std::vector<TokenId>> lists;
  lists.reserve(arguments.size());
  for (const std::string& argument : arguments) lists.push_back(read_token_list(argument));
  return lists;
}

std::vector<std::vector<TokenId>> encode_texts(const LoadedModel& model, const std::vector<std::string>& texts,
                                               const std::string& prefix, Log& log, const Interrupts& interrupts) {
  if (model.tokenizer() == nullptr) {
    fail(ErrorKind::unsupported, "the model's file has no vocabulary: give token ids instead of texts (--tokens)");
  }
  std::vector<std::vector<TokenId>> lists;
  lists.reserve(texts.size());
  for (const std::string& text : texts) {
    check_interrupt(interrupts);
    EncodedText encoded = encode_text(model, prefix.empty() ? text : prefix + text);
    lists.push_back(std::move(encoded.tokens));
    if (encoded.cut) {
      log.warn("text {} has {} tokens; cut to the model's limit of {}", lists.size(), encoded.full_tokens,
               longest_embedded_text(model));
    }
  }
  return lists;
}

// Standard output, or a file that appears when all is written.
class VectorOutput {
 public:
  explicit VectorOutput(const std::string& path) {
    if (!path.empty() && path != "-") file_.emplace(path);
  }

  void write(std::string_view bytes) {
    if (file_) {
      file_->write(std::as_bytes(std::span(bytes)));
    } else {
      write_output(bytes);
    }
  }
  void commit() {
    if (file_) file_->commit();
  }

 private:
  std::optional<OutputFile> file_;
};

// Tells how far the work is where somebody watches, and ends it when they press Ctrl-C.
class Watch {
 public:
  Watch(std::size_t total, const Interrupts& interrupts) : total_(total), interrupts_(interrupts) {
    if (total >= kTextsWithProgress && is_terminal(Stream::error)) bar_.emplace(ProgressUnit::items);
  }

  void tell(std::size_t done) {
    check_interrupt(interrupts_);
    if (bar_) bar_->show("embedding", done, total_);
  }

 private:
  std::size_t total_;
  const Interrupts& interrupts_;
  std::optional<ProgressBar> bar_;
};

// Vectors of single tokens take much memory, so those of one text are held at a time.
void write_vectors(const std::shared_ptr<LoadedModel>& model, const EmbeddingOptions& options,
                   std::span<const std::vector<TokenId>> lists, bool by_token, VectorWriter& writer, Watch& watch) {
  const std::size_t at_once = by_token ? 1 : kTextsAtOnce;
  for (std::size_t begin = 0; begin < lists.size(); begin += at_once) {
    const auto part = lists.subspan(begin, std::min(at_once, lists.size() - begin));
    const auto results = embed(model, {part.begin(), part.end()}, options, [&](std::size_t done, std::size_t) {
      watch.tell(begin + done);
      return true;
    });
    for (const Embedding& result : results) {
      const std::span<const std::vector<float>> one(&result.values, 1);
      writer.add(result.tokens, by_token ? std::span<const std::vector<float>>(result.token_vectors) : one);
    }
  }
}

int store_texts(const EmbedCommand& command, const EmbeddingOptions& options, const LoadOptions& load, Log& log,
                const Interrupts& interrupts) {
  if (!command.texts.empty() || command.file.empty()) {
    fail(ErrorKind::usage, "--to stores the texts of a file: name it with --file (- is standard input)");
  }
  return run_embed_to(
      command.to, command.file, options, [&] { return load_model(command.model, command.options, load, log); }, log,
      interrupts);
}

int run_embed(const EmbedCommand& command, Log& log, const Interrupts& interrupts) {
  const EmbeddingOptions options{
      .pooling = pooling_of(command.pooling), .normalize = command.normalize == "on", .dimensions = command.dimensions};
  LoadOptions load{.executor = executor_options(command.options)};
  load.executor.pooling = options.pooling;
  load.executor.logits = false;
  if (!command.to.address.empty()) return store_texts(command, options, load, log, interrupts);

  const bool has_texts = !command.texts.empty() || !command.file.empty();
  if (!has_texts && command.tokens.empty()) {
    fail(ErrorKind::usage, "there is nothing to embed: give a TEXT, --file, - for standard input, or --tokens");
  }
  if (has_texts && !command.tokens.empty()) {
    fail(ErrorKind::usage, "give either --tokens or texts, not both");
  }
  const VectorFormat format = vector_format_of(command.format);
  if (is_binary(format) && command.out.empty() && is_terminal(Stream::output)) {
    fail(ErrorKind::usage, "--format {} writes no text: name a file (--out) or redirect the output", command.format);
  }

  std::vector<std::vector<TokenId>> lists = read_token_lists(command.tokens);
  const std::vector<std::string> texts = has_texts ? read_texts(command) : std::vector<std::string>{};
  const auto model = load_model(command.model, command.options, load, log);
  // All mistakes are told before anything is written.
  VectorShape shape{.vectors = lists.size(), .width = static_cast<std::size_t>(vector_width(*model, options))};
  for (std::size_t i = 0; i < lists.size(); ++i) {
    check_token_ids(lists[i], model->spec().vocabulary, token_list_fault(command.tokens[i]));
  }
  if (has_texts) lists = encode_texts(*model, texts, command.to.prefix, log, interrupts);
  const bool by_token = options.pooling == Pooling::none;
  shape.vectors = by_token ? 0 : lists.size();
  for (std::size_t i = 0; i < lists.size(); ++i) {
    check_embedded_text(*model, lists[i], i + 1);
    if (by_token) shape.vectors += lists[i].size();
  }

  VectorOutput output(command.out);
  Watch watch(lists.size(), interrupts);
  VectorWriter writer(format, by_token, shape, [&output](std::string_view bytes) { output.write(bytes); });
  write_vectors(model, options, lists, by_token, writer, watch);
  writer.finish();
  output.commit();
  return 0;
}

}  // namespace

void add_embed(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<EmbedCommand>();
  CLI::App* command = app.add_subcommand("embed", "Turn texts into vectors");
  command->add_option("MODEL", options->model, "A GGUF file or the name of a model")->required();
  add_texts(*command, "TEXT", options->texts, "Texts to embed; - reads them from standard input, one per line");
  command->add_option("--file", options->file, "Texts to embed, one per line")->check(not_empty())->type_name("FILE");
  CLI::Option* tokens =
      command->add_option("--tokens", options->tokens, "Token ids instead of a text: 1,2,3 or @FILE; may be repeated");
  tokens->type_name("IDS")->allow_extra_args(false);
  command->add_option("--normalize", options->normalize, "Scale vectors to length 1: on or off")
      ->check(one_of({"on", "off"}))
      ->type_name("SWITCH")
      ->capture_default_str();
  command
      ->add_option(
          "--pooling", options->pooling,
          "How rows become a vector: none (one vector per token), mean, cls, last or rank (scores); default: what "
          "the file says, else mean for encoders and last for decoders")
      ->check(one_of({"none", "mean", "cls", "last", "rank"}))
      ->type_name("KIND");
  command
      ->add_option("--dimensions", options->dimensions,
                   "Only the first N values, for models that allow it (Matryoshka)")
      ->check(whole_number(1, 1 << 24))
      ->type_name("N");
  CLI::Option* format =
      command->add_option("--format", options->format, "json, jsonl (one object per line), f32 (raw) or npy");
  format->check(one_of({"json", "jsonl", "f32", "npy"}))->type_name("FORMAT")->capture_default_str();
  CLI::Option* out = command->add_option("--out,-o", options->out, "Where to write; default, and -: standard output");
  out->check(not_empty())->type_name("FILE");
  add_embed_to_flags(*command, options->to)->excludes(format)->excludes(tokens)->excludes(out);
  add_model_options(*command, options->options);
  command->footer(
      "Prefixes that some models expect (\"search_query: \", \"query: \") are added only by --prefix.\nTexts longer "
      "than the model's limit are cut, with a warning.\nWith --to, a run that was interrupted continues where it "
      "stopped: see docs/longbow.md.\n\nExamples:\n"
      "  quarrel embed model.gguf \"A sentence.\" \"Another one.\"\n"
      "  quarrel embed model.gguf --file lines.txt --format npy --out vectors.npy\n"
      "  quarrel embed model.gguf --file notes/ --to longbow://localhost/notes");
  command->callback([options, &context] {
    context.run = [options, &context] {
      return run_interruptible(
          [&](const Interrupts& interrupts) { return run_embed(*options, context.log, interrupts); });
    };
  });
}

}  // namespace quarrel

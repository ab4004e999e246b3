#include "app/embed_to.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include <CLI/CLI.hpp>

#include "app/progress_bar.h"
#include "app/state_folder.h"
#include "app/stop_on_interrupt.h"
#include "app/value_checks.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/printable.h"
#include "ingest/dataset_check.h"
#include "ingest/folder_source.h"
#include "ingest/ingest_estimate.h"
#include "ingest/ingestion.h"
#include "ingest/line_source.h"
#include "ingest/model_embedder.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kUsualChunk = 256;

bool is_json_lines(const EmbedToCommand& command, const std::string& file) {
  if (command.input != "auto") return command.input == "jsonl";
  const std::string extension = fs::path(file).extension().string();
  return extension == ".jsonl" || extension == ".ndjson";
}

std::unique_ptr<TextSource> open_source(const EmbedToCommand& command, const std::string& file,
                                        const ModelEmbedder& embedder, Log& log) {
  UnusableText unusable = [&command, &log](const std::string& message) {
    if (!command.skip_bad) fail(ErrorKind::bad_input, "{} (--skip-bad leaves such texts out)", message);
    log.warn("{}; left out", message);
  };
  std::error_code error;
  if (file != "-" && fs::is_directory(file, error)) {
    if (command.input != "auto") fail(ErrorKind::usage, "--input says how lines are read, and {} is a folder", file);
    FolderSourceOptions options{.columns = command.columns.size()};
    options.chunks.tokens =
        command.chunk ? static_cast<std::size_t>(*command.chunk) : std::min(kUsualChunk, embedder.longest_text());
    options.chunks.overlap = std::min(static_cast<std::size_t>(command.overlap), options.chunks.tokens / 2);
    if (options.chunks.tokens > embedder.longest_text()) {
      fail(ErrorKind::usage, "a chunk of {} tokens is longer than the model's limit of {}", options.chunks.tokens,
           embedder.longest_text());
    }
    return std::make_unique<FolderSource>(
        file, options, [&embedder](std::string_view text) { return embedder.tokens(text); }, std::move(unusable));
  }
  if (command.chunk) fail(ErrorKind::usage, "--chunk cuts the files of a folder, and {} is none", printable(file));
  LineSourceOptions options{.columns = command.columns};
  options.format = is_json_lines(command, file) ? LineFormat::json : LineFormat::text;
  if (options.format == LineFormat::text && !command.columns.empty()) {
    fail(ErrorKind::usage, "--column names members of JSON objects, and the texts are plain lines");
  }
  return std::make_unique<LineSource>(file, std::move(options), std::move(unusable));
}

fs::path journal_of(const EmbedToCommand& command, const LongbowAddress& address) {
  if (!command.journal.empty()) return command.journal;
  const fs::path folder = state_folder();
  if (folder.empty()) fail(ErrorKind::usage, "there is no home folder for the journal: name a file (--journal)");
  return journal_path(folder, longbow_address_text(address));
}

std::string per_second(std::uint64_t count, double seconds) {
  const double rate = static_cast<double>(count) / std::max(seconds, 1e-3);
  return rate < 1000.0 ? fmt::format("{:.1f}", rate) : fmt::format("{:.1f}k", rate / 1000.0);
}

std::string rates(const IngestProgress& progress, double seconds) {
  return fmt::format("{} texts/s, {} tokens/s, {:.1f} MB/s", per_second(progress.embedded, seconds),
                     per_second(progress.tokens, seconds),
                     static_cast<double>(progress.bytes) / 1e6 / std::max(seconds, 1e-3));
}

// Shows how far it is.
class IngestWatch {
 public:
  IngestWatch(const TextSource& source, const Interrupts& interrupts) : source_(source), interrupts_(interrupts) {}

  bool operator()(const IngestProgress& progress) {
    const bool is_first = std::exchange(is_first_, false);
    if (progress.settling && !is_first) {  // most stores have nothing to do before a run, and say so at once
      bar_.show("waiting for the store to index the rows", 0, 0);
    } else if (!progress.settling) {
      // Texts are read ahead of what is done with them.
      const SourceCounts& counts = source_.counts();
      const std::uint64_t done =
          counts.bytes * (progress.texts - progress.waiting) / std::max(progress.texts, std::uint64_t{1});
      bar_.show(progress.pass == 1 ? "embedding" : "embedding again", done, counts.total_bytes,
                rates(progress, seconds_since(start_)));
    }
    return !interrupts_.requested().load(std::memory_order_relaxed);
  }
  double seconds() const { return seconds_since(start_); }

 private:
  const TextSource& source_;
  const Interrupts& interrupts_;
  const Clock::time_point start_ = Clock::now();
  ProgressBar bar_{ProgressUnit::bytes};
  bool is_first_ = true;
};

std::string summary(const IngestReport& report, const SourceCounts& counts, const std::string& dataset,
                    double seconds) {
  const IngestProgress& progress = report.progress;
  std::string text =
      fmt::format("{}: {} stored in {}", counted(progress.texts, "text"), progress.sent, printable(dataset));
  if (progress.stored_before > 0) text += fmt::format(", {} there before", progress.stored_before);
  if (progress.repeated > 0) text += fmt::format(", {} repeated", progress.repeated);
  if (counts.unusable > 0) text += fmt::format(", {} left out", counts.unusable);
  if (progress.sent > 0) text += fmt::format(" ({}, {})", human_duration(seconds), rates(progress, seconds));
  return text + "\n";
}

std::string estimate_text(const IngestEstimate& estimate) {
  const std::uint64_t wanted = estimate.texts - estimate.stored_before - estimate.repeated;
  std::string text = fmt::format("texts      {} to store", wanted);
  if (estimate.stored_before > 0) text += fmt::format(", {} there before", estimate.stored_before);
  if (estimate.repeated > 0) text += fmt::format(", {} repeated", estimate.repeated);
  text += fmt::format("\ntokens     {}", estimate.tokens);
  if (estimate.cut > 0) text += fmt::format(" ({} cut to the model's limit)", counted(estimate.cut, "text"));
  text += fmt::format("\nto send    {}\n", human_bytes(estimate.bytes));
  if (estimate.sample_texts == 0) return text;
  text += fmt::format("time       {} to embed them (a sample of {} with {} took {})\n",
                      human_duration(estimate.seconds), counted(estimate.sample_texts, "text"),
                      counted(estimate.sample_tokens, "token"), human_duration(estimate.sample_seconds));
  return text;
}

// What is to be known of a run that went to its end. Throws Error(io) where rows are missing.
void tell_end(const IngestReport& report, const ModelEmbedder& embedder, const EmbedToCommand& command, Log& log) {
  if (embedder.cut_texts() > 0) {
    log.warn("cut to the model's limit of {} tokens: {}", embedder.longest_text(),
             counted(embedder.cut_texts(), "text"));
  }
  const StoreState& store = report.store;
  if (store.repeated > 0) {
    log.warn(
        "more than once in the dataset: {}. The store took in a batch late, after it had been sent again; searches "
        "find these texts twice. Delete the dataset and run the command again to have each once",
        counted(store.repeated, "row"));
  }
  if (store.unindexed > 0)
    log.warn("in the dataset, but not searched by its store: {}", counted(store.unindexed, "row"));
  if (store.missing > 0) {
    fail(ErrorKind::io,
         "{} took {} and lost them: it drops rows where its memory is full; the same command sends them again",
         printable(command.address, 200), counted(store.missing, "row"));
  }
}

// What may pass, and what the user ended: the rest fails again, as does a token or a certificate that is wrong.
bool goes_on_later(const Error& error) {
  if (error.kind() == ErrorKind::cancelled) return true;
  const auto* store = dynamic_cast<const LongbowError*>(&error);
  if (store != nullptr && store->after_failure() == AfterFailure::give_up) return false;
  return error.kind() == ErrorKind::io || error.kind() == ErrorKind::busy;
}

}  // namespace

CLI::Option* add_embed_to_flags(CLI::App& command, EmbedToCommand& options) {
  CLI::Option* to = command.add_option("--to", options.address,
                                       "Store the vectors in a dataset of Longbow: longbow://host[:3000]/dataset; "
                                       "--file may be a folder of text files then");
  to->check(not_empty())->type_name("ADDRESS");
  command.add_option("--prefix", options.prefix, "Put before each text when it is embedded, not stored")
      ->type_name("TEXT");
  command.add_option("--input", options.input, "How the file is read: lines, jsonl, or auto (by its name)")
      ->check(one_of({"auto", "lines", "jsonl"}))
      ->type_name("FORMAT")
      ->capture_default_str()
      ->needs(to);
  command
      .add_option("--chunk", options.chunk, "Tokens of a chunk of a folder's files; default: 256, or the model's limit")
      ->check(whole_number(8, 1 << 20))
      ->type_name("N")
      ->needs(to);
  command.add_option("--overlap", options.overlap, "Tokens that a chunk repeats of the one before, half of it at most")
      ->check(whole_number(0, 1 << 20))
      ->type_name("N")
      ->capture_default_str()
      ->needs(to);
  command
      .add_option("--column", options.columns,
                  "A key of the JSON objects that becomes a column to filter by; may "
                  "be repeated")
      ->check(not_empty())
      ->type_name("NAME")
      ->allow_extra_args(false)
      ->needs(to);
  command.add_option("--batch", options.batch, "Rows that are sent at once")
      ->check(whole_number(1, 50'000))
      ->type_name("N")
      ->capture_default_str()
      ->needs(to);
  command
      .add_option("--journal", options.journal, "The file that records what was stored; default: one for each dataset")
      ->check(not_empty())
      ->type_name("FILE")
      ->needs(to);
  command.add_flag("--append", options.append, "Add to a dataset that others have filled")->needs(to);
  command.add_flag("--skip-bad", options.skip_bad, "Leave out texts that cannot be used, with a warning")->needs(to);
  command.add_flag("--dry-run", options.dry_run, "Count texts, tokens and bytes, estimate the time, send nothing")
      ->needs(to);
  add_longbow_flags(command, options.longbow, to);
  return to;
}

int run_embed_to(const EmbedToCommand& command, const std::string& file, const EmbeddingOptions& options,
                 const std::function<std::shared_ptr<LoadedModel>()>& load, Log& log, const Interrupts& interrupts) {
  const LongbowAddress address = read_longbow_address(command.address);
  check_column_names(command.columns);
  const StopOnInterrupt stop(interrupts);
  std::unique_ptr<LongbowClient> client;
  if (!command.dry_run) {
    client = open_longbow(address, command.longbow);
    client->readiness(address.dataset, stop.token());  // a store that is not there is told before a model is loaded
  }
  const std::shared_ptr<LoadedModel> model = load();
  ModelEmbedder embedder(model, options, command.prefix);
  const std::unique_ptr<TextSource> source = open_source(command, file, embedder, log);
  const fs::path path = journal_of(command, address);
  const JournalSubject subject{.dataset = longbow_address_text(address),
                               .model = embedder.fingerprint(),
                               .model_name = model->name(),
                               .dimension = embedder.dimension(),
                               .settings = embedder.settings(),
                               .columns = command.columns};
  IngestWatch watch(*source, interrupts);
  if (command.dry_run) {
    std::error_code error;
    std::optional<Journal> journal;
    if (fs::exists(path, error)) journal.emplace(path, subject, JournalAccess::read);
    const IngestEstimate estimate =
        estimate_ingest(*source, embedder, journal ? &*journal : nullptr,
                        [&interrupts](std::uint64_t) { return !interrupts.requested().load(); });
    write_output(estimate_text(estimate));
    return 0;
  }
  Journal journal(path, subject);
  const IngestOptions settings{.batch_rows = static_cast<std::size_t>(command.batch)};
  const IngestCalls calls{.watch = [&watch](const IngestProgress& progress) { return watch(progress); },
                          .note = [&log](const std::string& sentence) { log.warn("{}", sentence); }};
  begin_dataset(DatasetWait(*client, address.dataset, settings.send, calls.note), journal, embedder.dimension(),
                command.append ? UnknownRows::added_to : UnknownRows::refused,
                fmt::format("--append adds to them, --journal names the one that they were stored with in place of {}",
                            printable(path.string(), 400)),
                stop.token());
  try {
    const IngestReport report =
        ingest(*source, embedder, *client, address.dataset,
               ingest_schema(embedder.dimension(), command.columns, model->name()), journal, settings, calls);
    tell_end(report, embedder, command, log);
    write_output(summary(report, source->counts(), address.dataset, watch.seconds()));
    return report.store.repeated == 0 ? 0 : 1;
  } catch (const Error& error) {
    if (goes_on_later(error)) {
      const Journal::Counts counts = journal.counts();
      write_error(fmt::format("Sent so far: {}; the same command continues where this one stopped.\n",
                              counted(counts.there() + counts.unsure, "row")));
    }
    throw;
  }
}

}  // namespace quarrel

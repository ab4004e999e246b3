// Finds models: by path, by name in Quarrel's own store (a folder of GGUF files), by name in Ollama's store; removes
// and renames those of Quarrel's own. Used by the command line and the server. Holds only the places to look in and
// looks again at each call, so that a model pulled meanwhile is found; any thread may call.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/stored_settings.h"

namespace quarrel {

struct OllamaEntry;
struct StoredFile;

struct StorePaths {
  std::filesystem::path quarrel;              // empty when there is no place for a store (no home)
  std::vector<std::filesystem::path> ollama;  // in the order of precedence

  using Lookup = std::function<std::optional<std::string>(std::string_view name)>;
  // QUARREL_MODELS, else XDG_DATA_HOME or ~/.local/share with quarrel/models; OLLAMA_MODELS, else ~/.ollama/models and
  // then the folder of Ollama's service user.
  static StorePaths from(const Lookup& lookup);
  static StorePaths from_environment();
};

enum class ModelPlace { file, quarrel, ollama };
std::string_view place_name(ModelPlace place) noexcept;

struct ResolvedModel {
  std::filesystem::path path;  // of the GGUF file
  std::string name;            // what to call it
  ModelPlace place = ModelPlace::file;
  // What a store keeps beside the weights.
  std::optional<std::string> system;
  std::optional<std::string> template_text;  // Jinja in Quarrel's store, Go's in Ollama's
  std::optional<std::string> params;         // the text of a JSON object
  std::string license = {};
};

struct ListedModel {
  std::string name;
  std::string alias = {};  // what `pull` calls it, "default" for one; empty for others
  ModelPlace place = ModelPlace::quarrel;
  std::uint64_t bytes = 0;
  std::chrono::system_clock::time_point modified;
  std::string parameters = {};    // "135M"; empty if unknown
  std::string quantisation = {};  // "Q4_1"; empty if unknown
  std::string problem = {};       // why it cannot be used, or perhaps should not; empty if there is no reason
  bool usable = true;             // whatever the problem is, it can be run
};

// What a command that is about to use a model should say first: that it is no longer what was stored, and what to do.
std::optional<std::string> change_warning(const ResolvedModel& model);

// What became of a model that was removed or given a further name.
struct RemovedModel {
  std::string name;
  std::uint64_t bytes = 0;  // that were freed: none of a file that has another name
  bool was_lost = false;    // a file that it was a link to was gone
};
struct LinkedModel {
  std::filesystem::path path;
  bool template_left = false;  // Ollama's template did not come along: it is not written in Jinja
};

class ModelStore {
 public:
  explicit ModelStore(StorePaths paths) : paths_(std::move(paths)) {}

  // A path if a file of that name exists or the text can only be one; otherwise a name of Quarrel's store, then one of
  // Ollama's. Throws Error: not_found with the nearest names or for a link whose file is gone, usage for a directory or
  // an ambiguous name, and what read_ollama() throws. The file itself is not opened.
  ResolvedModel resolve(const std::string& name) const;

  // The same for those who must not name files: stores alone are looked at, in the same order.
  ResolvedModel resolve_name(const std::string& name) const;

  // Both stores' models, Quarrel's first. Broken ones are listed with their problem; nothing in a store is fatal.
  // `verify`, verify_stored() for one, says what is wrong with a file of Quarrel's store; without it, its stamp does.
  using Verify = std::function<std::optional<std::string>(const StoredFile&)>;
  std::vector<ListedModel> list(const Verify& verify = {}) const;

  // Removes a model of Quarrel's own store, all its parts. Throws Error: not_found, usage for a file elsewhere or a
  // model of Ollama's store, which is never written; io.
  RemovedModel remove(const std::string& name) const;

  // Gives a model a further name in Quarrel's own store, by a link: a hard one within the store, so that removing
  // either leaves the other whole, a symbolic one to files elsewhere. All parts of a split model get it. Throws Error:
  // what resolve() and GgufFile::open() throw, usage for a name that cannot be one or exists, io.
  LinkedModel add_name(const std::string& name, const std::string& further) const;
  LinkedModel add_name(const ResolvedModel& model, const std::string& further) const;

  // Makes a model of Quarrel's own store, or replaces one: the weights of `from`, linked, with settings of its own.
  // Gives its path. Throws Error: usage for a name that cannot be one, what GgufFile::open() throws, io.
  std::filesystem::path create(const std::string& name, const ResolvedModel& from,
                               const StoredSettings& settings) const;

  // The same with weights of its own: `file`, which lies in the store's folder and has this digest, is moved there.
  std::filesystem::path adopt(const std::string& name, const std::filesystem::path& file, const std::string& digest,
                              const StoredSettings& settings) const;

  // What the models are called whose place create() or adopt() of this name would take, or has taken: as the store
  // spells it, since letter case and the extension make no difference, as `pull` knows its file, whether that is there
  // or not, and as Ollama's store spells what is no longer found there. Nothing: it would be a new one.
  std::vector<std::string> replaced_names(const std::string& name) const;

  // The name that add_name() gives: a file's name is as good as the model's.
  static std::string further_name(std::string further);

  // Throws Error(usage) for a name that no model of Quarrel's own store can have.
  static void check_model_name(const std::string& name);

  const StorePaths& paths() const noexcept { return paths_; }

 private:
  struct ModelToMake {
    std::string name;                               // as the store spells it, if it has it already
    std::optional<std::filesystem::path> replaced;  // whose place it takes
  };

  void require_folder() const;
  void make_folder() const;
  ModelToMake to_make(const std::string& name) const;
  std::optional<ResolvedModel> find_named(const std::string& name, const std::vector<OllamaEntry>& entries) const;

  StorePaths paths_;
};

// What a model has beside its weights and a further name of it can keep: Ollama's templates are not written in Jinja.
StoredSettings kept_settings(const ResolvedModel& model);

}  // namespace quarrel

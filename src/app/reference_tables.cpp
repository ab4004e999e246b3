// What the whole program documents once: exit codes and environment variables.
#include <array>

#include "app/command_reference.h"

namespace quarrel {
namespace {

constexpr std::array<NamedText, 4> kExitCodes{{
    {"0", "success"},
    {"1", "failure: a model or a file that is missing, damaged or cannot be used, a check that failed"},
    {"2", "wrong usage: an unknown command or option, a bad value, options that exclude each other"},
    {"130", "interrupted by Ctrl-C; leaving a chat that way counts as success"},
}};

constexpr std::array<NamedText, 8> kEnvironment{{
    {"QUARREL_MODELS", "Quarrel's store; default: quarrel/models in XDG_DATA_HOME or ~/.local/share"},
    {"OLLAMA_MODELS", "Ollama's store, which is only read; default: ~/.ollama/models, then that of its service"},
    {"QUARREL_ISA", "scalar, avx2, avx512 or amx: force an instruction set, or fail if the machine lacks it"},
    {"QUARREL_HISTORY", "0: the chat keeps no history file"},
    {"QUARREL_TEST_MODELS", "models on which `regress` runs a suite's generic checks instead of the listed ones"},
    {"QUARREL_CONFIG", "the settings file of `serve`; default: quarrel/config.toml in XDG_CONFIG_HOME or ~/.config"},
    {"QUARREL_API_KEY",
     "the key that `serve` asks for, and that `ps` and `stop` send; docs/server.md lists the other variables of "
     "`serve`"},
    {"NO_COLOR", "no colours on a terminal"},
}};

}  // namespace

std::span<const NamedText> exit_codes() noexcept { return kExitCodes; }
std::span<const NamedText> environment_variables() noexcept { return kEnvironment; }

}  // namespace quarrel

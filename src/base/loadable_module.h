// Parts of the program that are shared libraries of their own and opened at run time, so that it runs where what they
// need is not installed: the CUDA backend, the Flight client. They are looked for beside the file that this code lies
// in (the program, or a library that others link), beside the program, and in the folder lib beside the program's own.
// Stateless: any thread may call.
#pragma once

#include <string_view>

namespace quarrel {

struct LoadableModule {
  const char* file;         // libquarrel_….so
  std::string_view part;    // what it is, for messages: "CUDA backend"
  std::string_view remedy;  // what to do where it is absent, after a semicolon; may be empty
};

// Whether the file is there; nothing is loaded.
bool has_module(const LoadableModule& module);

// The function `name` of the module, which is opened where it was not, and never closed: what it made may outlive
// whoever opened it. Throws Error(unsupported) with a sentence: no such file, it cannot be loaded, it has no such
// function.
void* module_function(const LoadableModule& module, const char* name);

}  // namespace quarrel

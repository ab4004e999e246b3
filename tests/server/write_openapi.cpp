// Writes the server's description to standard output: `make openapi` keeps it as docs/openapi.yaml.
#include <cstdio>

#include "server/openapi.h"

int main() {
  const std::string text = quarrel::to_yaml(quarrel::openapi_document(quarrel::routes()));
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}

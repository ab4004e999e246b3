#include "support/temp_dir.h"

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include "base/error.h"

namespace quarrel::test {

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "quarrel-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    fail(ErrorKind::io, "cannot make a folder like {}: {}", name, std::generic_category().message(errno));
  }
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;  // a folder left behind is no reason to end a test run
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace quarrel::test

// The files of web/docs as they were when the program was built.
#pragma once

#include <string_view>

namespace quarrel::files {

extern const std::string_view kDocsHtml, kDocsScript, kDocsStyle;

}  // namespace quarrel::files

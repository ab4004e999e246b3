// Where the commands find OutputFile: it lives in base, because the GGUF writer uses it too.
#pragma once

#include "base/output_file.h"

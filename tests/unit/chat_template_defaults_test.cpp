#include "unit/chat_template_support.h"

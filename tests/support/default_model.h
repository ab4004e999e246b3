// The real default model, where it has been pulled; elsewhere its tests are skipped, with the reason printed.
#pragma once

#include "support/stored_model.h"

namespace quarrel::test {

class DefaultModelTest : public StoredModelTest {
 protected:
  DefaultModelTest() : StoredModelTest("default") {}
};

}  // namespace quarrel::test

// A library that was built without Lua says so.

#include <gtest/gtest.h>

#include <string>

#include "modules/module.h"

namespace ch3_offload {

TEST(ModulesAbsent, CannotBeLoaded) {
  std::string error;
  EXPECT_EQ(Module::load("m", "function on_message() end", {}, {}, error), nullptr);
  EXPECT_NE(error.find("liblua5.4-dev"), std::string::npos);
}

}  // namespace ch3_offload

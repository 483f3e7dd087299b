// A library that was built without ISA-L says so.

#include <gtest/gtest.h>

#include "ch3_offload/making.h"
#include "rdma/checked/checksum.h"

namespace ch3_offload::checksum_absent_test {

TEST(ChecksumAbsent, CannotBeAskedFor) {
  EXPECT_FALSE(have_checksums());
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  config.job_size = config.local_size = 2;
  EXPECT_FALSE(checksums_missing(config));
  config.checksum = "network";
  const auto missing = checksums_missing(config);
  ASSERT_TRUE(missing);
  EXPECT_NE(missing->message.find("libisal-dev"), std::string::npos) << missing->message;
}

}  // namespace ch3_offload::checksum_absent_test

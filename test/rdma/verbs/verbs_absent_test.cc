#include <gtest/gtest.h>

#include "rdma/verbs/verbs_config.h"

namespace ch3_offload {
namespace {

TEST(VerbsAbsent, MakingAProviderNamesThePackageThatIsMissing) {
  const auto provider = make_verbs_provider(VerbsConfig{});
  ASSERT_FALSE(provider.ok());
  EXPECT_EQ(provider.error().status, Status::kUnsupported);
  EXPECT_NE(provider.error().message.find("libibverbs-dev"), std::string::npos) << provider.error().message;
}

TEST(VerbsAbsent, NoPortIsDescribed) {
  VerbsConfig config;
  config.device = "mlx5_0";
  EXPECT_TRUE(describe_verbs_ports(config).empty());
}

}  // namespace
}  // namespace ch3_offload

#include <gtest/gtest.h>

#include "rdma/tcp/tcp_config.h"

namespace ch3_offload {
namespace {

TEST(TcpAbsent, MakingAProviderNamesThePackageThatIsMissing) {
  const auto provider = make_tcp_provider(TcpConfig{});
  ASSERT_FALSE(provider.ok());
  EXPECT_EQ(provider.error().status, Status::kUnsupported);
  EXPECT_NE(provider.error().message.find("libsodium-dev"), std::string::npos) << provider.error().message;
}

}  // namespace
}  // namespace ch3_offload

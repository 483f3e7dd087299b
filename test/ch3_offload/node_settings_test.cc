#include "ch3_offload/node_settings.h"

#include <gtest/gtest.h>

namespace ch3_offload {
namespace {

/// Names nothing that any node has.
ch3_offload_config_t of_another_node() {
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  config.verbs_device = "no-such-device";
  config.network_interface = "eth77";
  config.nic_cores = "65535";
  config.nicd = "/no/program";
  return config;
}

TEST(NodeSettings, WhatNamesNothingOfThisNodeIsSaidThoughNobodyUsesIt) {
  const char* const wanted[] = {
      "MPIR_CVAR_CH3_OFFLOAD_VERBS_DEVICE=no-such-device means nothing on this node: ",
      "MPIR_CVAR_CH3_OFFLOAD_INTERFACE=eth77 means nothing on this node: ",
      "MPIR_CVAR_CH3_OFFLOAD_NIC_CORES=65535: the job may not run on processor 65535",
      "MPIR_CVAR_CH3_OFFLOAD_NICD=/no/program means nothing on this node: ",
  };
  const std::vector<std::string> lines = meaningless_here(of_another_node(), {});
  ASSERT_EQ(lines.size(), std::size(wanted));
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_TRUE(lines[i].starts_with(wanted[i])) << lines[i];
}

TEST(NodeSettings, WhoUsesWhatIsNamedIsToldOtherwise) {
  EXPECT_TRUE(meaningless_here(of_another_node(), {true, true, true, true}).empty());
}

TEST(NodeSettings, TheDefaultsHaveAMeaningEverywhere) {
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  EXPECT_TRUE(meaningless_here(config, {}).empty());
}

}  // namespace
}  // namespace ch3_offload

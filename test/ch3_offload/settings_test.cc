#include "ch3_offload/settings.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "dme/pin_budget.h"

namespace ch3_offload {
namespace {

const Setting& named(std::string_view suffix) {
  for (const Setting& setting : settings()) {
    if (std::string_view(setting.variable).ends_with(suffix)) return setting;
  }
  ADD_FAILURE() << suffix;
  return settings()[0];
}

/// What set_from_text says; "" when it takes the text.
std::string said(std::string_view suffix, const char* text) {
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  return set_from_text(named(suffix), text, config).value_or("");
}

TEST(Settings, SizesTakeSuffixes) {
  EXPECT_EQ(parse_size("0"), 0);
  EXPECT_EQ(parse_size("65536"), 65536);
  EXPECT_EQ(parse_size("64k"), 64 << 10);
  EXPECT_EQ(parse_size("64M"), 64 << 20);
  EXPECT_EQ(parse_size("3G"), std::int64_t{3} << 30);
  EXPECT_EQ(parse_size("1t"), std::int64_t{1} << 40);
  EXPECT_EQ(parse_size("9223372036854775807"), INT64_MAX);
}

TEST(Settings, WhatIsNoSizeIsRefused) {
  for (const char* text : {"", " 1", "-1", "+1", "1.5M", "64X", "64MB", "M", "banana", "0x10",
                           "9223372036854775808", "8388608T"}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  }
}

TEST(Settings, NumbersHave64Bits) {
  EXPECT_EQ(parse_number("12"), 12);
  EXPECT_EQ(parse_number("-1"), -1);
  EXPECT_EQ(parse_number("+7"), 7);
  EXPECT_EQ(parse_number("2147483648"), std::int64_t{1} << 31);
  EXPECT_EQ(parse_number("-9223372036854775808"), INT64_MIN);
  for (const char* text :
       {"", " 12", "12 ", "1x", "--1", "+-1", "-+1", "1.5", "64K", "9223372036854775808"}) {
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
  }
}

TEST(Settings, WhatDoesNotFitIntoAnIntIsRefusedAsItWasTyped) {
  for (const char* text : {"4294967297", "99999999999", "99999999999999999999"}) {
    EXPECT_NE(said("_EAGER_LIMIT", text).find(std::string("_EAGER_LIMIT=") + text), std::string::npos)
        << text;
    EXPECT_NE(said("_SPIN", text).find(std::string("_SPIN=") + text), std::string::npos) << text;
  }
  EXPECT_NE(said("_PORT_RANGE", "1:4294967297").find("=1:4294967297"), std::string::npos);
}

TEST(Settings, AnEmptyTextIsTheDefaultOfEachKind) {
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  EXPECT_EQ(set_from_text(named("_EAGER_LIMIT"), "7", config), std::nullopt);
  EXPECT_EQ(set_from_text(named("_FABRIC"), "shm", config), std::nullopt);
  EXPECT_EQ(set_from_text(named("_PORT_RANGE"), "7:8", config), std::nullopt);
  for (const Setting& setting : settings()) {
    EXPECT_EQ(set_from_text(setting, "", config), std::nullopt) << setting.variable;
    EXPECT_EQ(to_string(setting, config), setting.standard) << setting.variable;
  }
}

TEST(Settings, WhatIsRefusedChangesNothing) {
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  EXPECT_NE(set_from_text(named("_SPIN"), "-2", config), std::nullopt);
  EXPECT_EQ(config.spin_us, -1);
  EXPECT_NE(set_from_text(named("_NIC"), "firmware", config), std::nullopt);
  EXPECT_STREQ(config.nic, "host");
}

TEST(Settings, ListsOfPortsAndInterfacesHaveAForm) {
  EXPECT_EQ(said("_VERBS_DEVICE", "mlx5_0:1,mlx5_1:2:3"), "");
  EXPECT_NE(said("_VERBS_DEVICE", "::::"), "");
  for (const char* text : {"ib*,eth0", "!docker0"}) EXPECT_EQ(said("_INTERFACE", text), "") << text;
  for (const char* text : {"eth0,,eth1", "!", ","}) EXPECT_NE(said("_INTERFACE", text), "") << text;
}

TEST(Settings, RangesAreReadAsMpichReadsThem) {
  using Range = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(parse_range("20000:20999"), (Range{20000, 20999}));
  EXPECT_EQ(parse_range(" 7:8"), (Range{7, 8}));
  EXPECT_EQ(parse_range("7"), (Range{7, 0}));
  EXPECT_EQ(parse_range(":8"), (Range{0, 8}));
  EXPECT_EQ(parse_range(""), (Range{0, 0}));
  for (const char* text : {"7:8 ", "7 :8", "7-8", "-7:8", "7:-8", "7:8:9", "a:b", "9223372036854775808:1"})
    EXPECT_EQ(parse_range(text), std::nullopt) << text;
}

TEST(Settings, APortRangeHasItsEndsInOrderAndWithinPorts) {
  for (const char* text : {"0:0", "", "1:65535", "20000:20000"})
    EXPECT_EQ(said("_PORT_RANGE", text), "") << text;
  EXPECT_EQ(
      said("_PORT_RANGE", "5:4"),
      "MPIR_CVAR_CH3_PORT_RANGE=5:4 is no range: it takes LOW:HIGH, TCP ports from 1 to 65535, or 0:0 for "
      "any");
  EXPECT_EQ(said("_PORT_RANGE", "banana"),
            "MPIR_CVAR_CH3_PORT_RANGE=banana: it takes LOW:HIGH, TCP ports from 1 to 65535, or 0:0 for any");
  for (const char* text : {"20000", "1:65536", "65536:65536", "-1:5"})
    EXPECT_NE(said("_PORT_RANGE", text), "") << text;

  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  EXPECT_EQ(verbs_config(config).first_port, 0);
  EXPECT_EQ(set_from_text(named("_PORT_RANGE"), "20000:20999", config), std::nullopt);
  EXPECT_EQ(to_string(named("_PORT_RANGE"), config), "20000:20999");
  EXPECT_EQ(verbs_config(config).first_port, 20000);
  EXPECT_EQ(verbs_config(config).last_port, 20999);
}

TEST(Settings, RightTextsAreStored) {
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  EXPECT_EQ(set_from_text(named("_UNEXPECTED_BUDGET"), "1G", config), std::nullopt);
  EXPECT_EQ(set_from_text(named("_SPIN"), "0", config), std::nullopt);
  EXPECT_EQ(set_from_text(named("_SHM_BULK"), "cma", config), std::nullopt);
  EXPECT_EQ(set_from_text(named("_TRACE"), "run", config), std::nullopt);
  EXPECT_EQ(config.unexpected_budget_bytes, 1 << 30);
  EXPECT_EQ(config.spin_us, 0);
  EXPECT_STREQ(config.shm_bulk, "cma");
  EXPECT_STREQ(config.trace, "run");
}

TEST(Settings, WrongTextsAreNamedWithTheirVariable) {
  EXPECT_EQ(said("_SPIN", "-2"),
            "MPIR_CVAR_CH3_OFFLOAD_SPIN=-2 is out of range: it takes microseconds from 0 to 10000000, or -1 "
            "to adapt");
  EXPECT_EQ(said("_SEND_BUFFER", "64X"),
            "MPIR_CVAR_CH3_OFFLOAD_SEND_BUFFER=64X: it takes bytes from 0 to 1T; K, M, G and T may follow");
  EXPECT_EQ(said("_FABRIC", "ucx"),
            "MPIR_CVAR_CH3_OFFLOAD_FABRIC=ucx: it takes auto, shm, verbs, tcp, shm+verbs or shm+tcp");
  EXPECT_NE(said("_SHM_RING_SIZE", "65537"), "");
}

TEST(Settings, ATraceNeedsAFolderThatCanBeWritten) {
  EXPECT_EQ(said("_TRACE", ""), "");
  EXPECT_EQ(said("_TRACE", "/tmp/run"), "");
  EXPECT_EQ(
      said("_TRACE", "/nonexistent/run"),
      "MPIR_CVAR_CH3_OFFLOAD_TRACE=/nonexistent/run (No such file or directory): it takes a prefix of file "
      "names in a writable folder, or nothing");
}

TEST(Settings, RingsShareAPartOfTheNodesMemory) {
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  config.local_size = 128;
  config.job_size = 1024;
  EXPECT_EQ(shm_config(config).processes_on_node, 128u);
  EXPECT_EQ(shm_config(config).memory_bytes, pin_limits(1).memory_bytes / 16);
  config.shm_memory_bytes = 1 << 20;
  EXPECT_EQ(shm_config(config).memory_bytes, std::size_t{1} << 20);
}

TEST(Settings, SizesAreShownAsAUserWritesThem) {
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  EXPECT_EQ(to_string(named("_UNEXPECTED_BUDGET"), config), "64M");
  EXPECT_EQ(to_string(named("_EAGER_LIMIT"), config), "64K");
  EXPECT_EQ(to_string(named("_TRACE"), config), "");
  config.send_buffer_bytes = 1000;
  EXPECT_EQ(to_string(named("_SEND_BUFFER"), config), "1000");
  config.send_buffer_bytes = 0;
  EXPECT_EQ(to_string(named("_SEND_BUFFER"), config), "0");
}

}  // namespace
}  // namespace ch3_offload

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ch3_offload/ch3_offload.h"

namespace {

std::string complaint(const std::function<void(ch3_offload_config_t&)>& spoil) {
  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  spoil(config);
  char message[512] = "";
  return ch3_offload_config_check(&config, message, sizeof message) == 0 ? "" : message;
}

TEST(Config, DefaultsAreValid) {
  EXPECT_EQ(complaint([](auto&) {}), "");
}

TEST(Config, EveryBadValueNamesItsVariableAndItself) {
  const struct {
    const char* variable;
    const char* value;
    void (*spoil)(ch3_offload_config_t&);
  } cases[] = {
      {"_OFFLOAD_EAGER_LIMIT", "-1", [](auto& c) { c.eager_limit_bytes = -1; }},
      {"_OFFLOAD_UNEXPECTED_BUDGET", "-5", [](auto& c) { c.unexpected_budget_bytes = -5; }},
      {"_OFFLOAD_SEND_BUFFER", "-1", [](auto& c) { c.send_buffer_bytes = -1; }},
      {"_OFFLOAD_SPIN", "-2", [](auto& c) { c.spin_us = -2; }},
      {"_OFFLOAD_TRACE_EVENTS", "3", [](auto& c) { c.trace_events = 3; }},
      {"_OFFLOAD_SHM_RING_SIZE", "100000", [](auto& c) { c.shm_ring_bytes = 100000; }},
      {"_OFFLOAD_SHM_RING_SIZE", "4K", [](auto& c) { c.shm_ring_bytes = 4096; }},
      {"_OFFLOAD_SHM_MEMORY", "-1", [](auto& c) { c.shm_memory_bytes = -1; }},
      {"_OFFLOAD_SHM_BULK", "dma", [](auto& c) { c.shm_bulk = "dma"; }},
      {"_OFFLOAD_FABRIC", "ethernet", [](auto& c) { c.fabric = "ethernet"; }},
      {"_OFFLOAD_NIC", "firmware", [](auto& c) { c.nic = "firmware"; }},
      {"_OFFLOAD_CLASS", "urgent", [](auto& c) { c.traffic_class = "urgent"; }},
      {"_OFFLOAD_NIC_CORES", "3,", [](auto& c) { c.nic_cores = "3,"; }},
      {"_OFFLOAD_NIC_CORES", "9-8", [](auto& c) { c.nic_cores = "9-8"; }},
      {"_PORT_RANGE", "-1:5", [](auto& c) { c.port_range.low = -1, c.port_range.high = 5; }},
      {"_PORT_RANGE", "9:8", [](auto& c) { c.port_range.low = 9, c.port_range.high = 8; }},
      {"_PORT_RANGE", "9:70000", [](auto& c) { c.port_range.low = 9, c.port_range.high = 70000; }},
  };
  for (const auto& one : cases) {
    const std::string said = complaint(one.spoil);
    EXPECT_NE(said.find(std::string("MPIR_CVAR_CH3") + one.variable), std::string::npos) << said;
    EXPECT_NE(said.find(one.value), std::string::npos) << said;
    EXPECT_NE(said.find("takes"), std::string::npos) << said;
  }
}

TEST(Config, LibraryOfAnotherVersionIsRefused) {
  EXPECT_NE(complaint([](auto& c) { c.size_bytes -= 8; }).find("rebuild"), std::string::npos);
}

TEST(Config, RankOutsideTheJobIsRefused) {
  EXPECT_NE(complaint([](auto& c) { c.rank = 1; }), "");
}

}  // namespace

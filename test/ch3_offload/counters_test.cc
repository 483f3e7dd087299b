// The counters through the C interface: their names, and whose numbers they are.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "ch3_offload/ch3_offload.h"

namespace ch3_offload {
namespace {

class ChannelCounters : public testing::Test {
 protected:
  ~ChannelCounters() override {
    if (channel_ != nullptr) ch3_offload_destroy(channel_);
  }
  void make(const char* nic) {
    ch3_offload_config_t config;
    ch3_offload_config_default(&config);
    config.job_size = 1;
    config.local_size = 1;
    config.nic = nic;
    char message[256];
    ASSERT_EQ(ch3_offload_create(&config, &channel_, message, sizeof message), 0) << message;
  }
  /// The processor may write it at the same time.
  std::uint64_t value(const std::string& name) const {
    for (std::size_t i = 0; i < ch3_offload_counter_count(); ++i) {
      const char* description = nullptr;
      int is_level = 0;
      if (ch3_offload_counter_name(i, &description, &is_level) != name) continue;
      auto& counter = const_cast<std::uint64_t&>(*ch3_offload_counter(channel_, i));
      return std::atomic_ref<std::uint64_t>(counter).load(std::memory_order_relaxed);
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }
  /// A message of 8 bytes to this process, and its receive. Returns when both are done.
  void exchange() {
    std::uint64_t bytes = 1, room = 0, operation = 0;
    int status = 0;
    const ch3_offload_match_t match{7, 0}, ignore{0, 0};
    const ch3_offload_payload_t from{&bytes, sizeof bytes, nullptr}, to{&room, sizeof room, nullptr};
    ch3_offload_envelope_t envelope;
    ch3_offload_event_t event;
    ASSERT_EQ(ch3_offload_post_receive(channel_, match, ignore, &to, &room, &operation, &envelope),
              CH3_OFFLOAD_PENDING);
    ASSERT_EQ(
        ch3_offload_send(channel_, 0, CH3_OFFLOAD_STANDARD, match, &from, 0, &bytes, &operation, &status),
        CH3_OFFLOAD_DONE);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (ch3_offload_next_event(channel_, &event) == 0) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "no event";
      static_cast<void>(ch3_offload_progress(channel_));
      std::this_thread::yield();
    }
    EXPECT_EQ(event.cookie, &room);
    EXPECT_EQ(room, 1U);
  }

  ch3_offload_channel_t* channel_ = nullptr;
};

TEST_F(ChannelCounters, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < ch3_offload_counter_count(); ++i) {
    const char* description = nullptr;
    int is_level = 2;
    EXPECT_TRUE(names.insert(ch3_offload_counter_name(i, &description, &is_level)).second);
    EXPECT_NE(*description, '\0');
    EXPECT_LE(is_level, 1);
  }
  const char* description = nullptr;
  int is_level = 0;
  EXPECT_EQ(ch3_offload_counter_name(names.size(), &description, &is_level), nullptr);
}

TEST_F(ChannelCounters, OfTheRingsAreZeroWithoutRings) {
  make("host");
  exchange();
  EXPECT_EQ(value("sent_to_self"), 1U);
  for (const char* const name : {"ring_commands", "ring_events", "ring_nic_sleeps", "ring_nic_bells",
                                 "ring_client_sleeps", "ring_client_bells"})
    EXPECT_EQ(value(name), 0U) << name;
}

TEST_F(ChannelCounters, OfTheRingsCountWhatThisProcessDid) {
  make("thread");
  for (std::uint64_t i = 1; i <= 100; ++i) {
    exchange();
    EXPECT_EQ(value("ring_commands"), 2 * i);
    EXPECT_EQ(value("ring_events"), i) << "a small send has none";
  }
  EXPECT_EQ(value("ring_client_sleeps"), 0U) << "it has polled";
  EXPECT_EQ(value("ring_client_bells"), 0U);
  EXPECT_LE(value("ring_nic_bells"), value("ring_nic_sleeps"));
}

}  // namespace
}  // namespace ch3_offload

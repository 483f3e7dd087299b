// Which silence is a death: with what a kernel said of connections, and with a kernel that is made up, over
// outages of any length.

#include "rdma/tcp/tcp_silence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "rdma/seeded_random.h"

namespace ch3_offload {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

struct Said {
  std::uint64_t at_ms;
  std::uint8_t retransmits, probes;
  std::uint32_t unacked, last_ack_ms;
};

bool look(TcpSilence& silence, const Said& said, std::uint64_t timeout_ms) {
  tcp_info info{};
  info.tcpi_retransmits = said.retransmits;
  info.tcpi_probes = said.probes;
  info.tcpi_unacked = said.unacked;
  info.tcpi_last_ack_recv = said.last_ack_ms;
  return silence.is_death(info, (1'000'000 + said.at_ms) * kMs, timeout_ms * kMs);
}

/// Linux 6.18 said so of a connection over loopback whose receiver read nothing. It answers at most two probes
/// a second: that of 0.9 s has no answer.
TEST(TcpSilences, AHostThatHasNoRoomIsNotDead) {
  constexpr Said kSaid[] = {
      {0, 0, 0, 3, 0},       {390, 0, 0, 0, 132},   {780, 0, 0, 0, 312},   {1160, 0, 1, 0, 692},
      {1540, 0, 1, 0, 1072}, {1930, 0, 0, 0, 176},  {2310, 0, 0, 0, 560},  {2690, 0, 0, 0, 940},
      {3080, 0, 0, 0, 1328}, {3460, 0, 0, 0, 12},   {3840, 0, 0, 0, 396},  {4620, 0, 0, 0, 1172},
      {5380, 0, 0, 0, 1936}, {6180, 0, 0, 0, 2732}, {6570, 0, 0, 0, 3120}, {6950, 0, 0, 0, 144}};
  for (const std::uint64_t timeout_ms : {100u, 500u, 1000u}) {
    TcpSilence silence;
    for (const Said& said : kSaid) EXPECT_FALSE(look(silence, said, timeout_ms)) << said.at_ms;
  }
}

TEST(TcpSilences, AnIdleConnectionIsNotDead) {
  TcpSilence silence;
  for (std::uint32_t ms = 0; ms < 100'000; ms += 125)
    EXPECT_FALSE(look(silence, {ms, 0, 0, 0, 1000 + ms}, 1000));
}

/// Bytes that are under way for long without a try: the link is slow.
TEST(TcpSilences, BytesUnderWayAreNoTry) {
  TcpSilence silence;
  for (std::uint32_t ms = 0; ms < 10'000; ms += 125) EXPECT_FALSE(look(silence, {ms, 0, 0, 9, ms}, 1000));
}

/// Tries that lost packets need, while acknowledgements come.
TEST(TcpSilences, TriesOnALinkThatLosesPacketsAreNoSilence) {
  TcpSilence silence;
  for (std::uint32_t ms = 0; ms < 10'000; ms += 125)
    EXPECT_FALSE(look(silence, {ms, static_cast<std::uint8_t>(1 + ms / 1000), 0, 9, 100}, 1000));
}

TEST(TcpSilences, OneMoreTryAfterTheTimeOutIsWaitedForAndItsAnswer) {
  TcpSilence silence;
  EXPECT_FALSE(look(silence, {0, 1, 0, 1, 200}, 1000));
  for (std::uint32_t ms = 125; ms <= 2875; ms += 125)
    EXPECT_FALSE(look(silence, {ms, 3, 0, 1, 200 + ms}, 1000)) << ms;
  EXPECT_FALSE(look(silence, {3000, 4, 0, 1, 3200}, 1000)) << "its answer may be on its way";
  EXPECT_TRUE(look(silence, {3125, 4, 0, 1, 3325}, 1000));
}

TEST(TcpSilences, AnAnswerAfterTheTimeOutEndsIt) {
  TcpSilence silence;
  EXPECT_FALSE(look(silence, {0, 1, 0, 1, 200}, 1000));
  EXPECT_FALSE(look(silence, {1500, 3, 0, 1, 1700}, 1000));
  EXPECT_FALSE(look(silence, {2000, 4, 0, 1, 2200}, 1000));
  EXPECT_FALSE(look(silence, {2125, 4, 0, 1, 60}, 1000));
  EXPECT_FALSE(look(silence, {2250, 0, 0, 0, 50}, 1000));
  for (std::uint32_t ms = 2375; ms < 3300; ms += 125)
    EXPECT_FALSE(look(silence, {ms, 4, 0, 1, ms - 2200}, 1000)) << "it begins anew: " << ms;
}

/// A kernel that tries at intervals which double, and a link that is down from 0 on, for a while. Looks come
/// every eighth of the time-out. Returns when the silence counted as a death. 0: it did not.
std::uint64_t death_ms(std::uint64_t outage_ms, std::uint64_t sent_ms, std::uint64_t first_look_ms,
                       std::uint64_t timeout_ms) {
  constexpr std::uint64_t kFirstMs = 200, kMostMs = 120'000;
  TcpSilence silence;
  for (std::uint64_t now = first_look_ms; now < 20 * timeout_ms; now += timeout_ms / 8) {
    std::uint8_t tries = 0;
    std::uint64_t interval = kFirstMs, answered_ms = 0;
    for (std::uint64_t at = sent_ms + interval; at <= now && answered_ms == 0; at += interval) {
      ++tries;
      if (at >= outage_ms) answered_ms = at + 1;
      interval = std::min(2 * interval, kMostMs);
    }
    const bool is_answered = answered_ms != 0 && answered_ms <= now;
    const Said said{now, is_answered ? std::uint8_t{0} : tries, 0, is_answered || now < sent_ms ? 0u : 1u,
                    static_cast<std::uint32_t>(is_answered ? now - answered_ms : now + 10)};
    if (look(silence, said, timeout_ms)) return now;
  }
  return 0;
}

TEST(TcpSilences, AnOutageShorterThanTheTimeOutIsNoDeathAndALongOneIs) {
  SeededRandom random(1);
  for (const std::uint64_t timeout_ms : {1000u, 2000u, 10'000u, 60'000u}) {
    for (int i = 0; i < 2000; ++i) {
      const std::uint64_t sent_ms = random.below(timeout_ms / 2);
      const std::uint64_t first_look_ms = random.below(timeout_ms / 8);
      const std::uint64_t outage_ms = random.between(1, timeout_ms);
      EXPECT_EQ(death_ms(outage_ms, sent_ms, first_look_ms, timeout_ms), 0u)
          << outage_ms << ' ' << sent_ms << ' ' << timeout_ms;
      const std::uint64_t death = death_ms(UINT64_MAX, sent_ms, first_look_ms, timeout_ms);
      EXPECT_GT(death, timeout_ms + sent_ms);
      // The last try before the time-out, twice as long until the next, and the looks in between.
      EXPECT_LT(death, sent_ms + 2 * (timeout_ms + 200) + 3 * timeout_ms / 4);
    }
  }
}

/// Before Linux 5.1 a segment that the own host could not send, as with a cable that is out, is not counted again.
TEST(TcpSilences, TriesThatTheKernelDoesNotCountEndToo) {
  TcpSilence silence;
  bool is_dead = false;
  std::uint32_t ms = 0;
  for (; ms < 20'000 && !is_dead; ms += 125) is_dead = look(silence, {ms, 1, 0, 3, 1000 + ms}, 1000);
  EXPECT_TRUE(is_dead);
  EXPECT_GT(ms, 3000u);
  EXPECT_LT(ms, 4000u);
}

}  // namespace
}  // namespace ch3_offload

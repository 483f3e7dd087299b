// The target table against an oracle: random appends, searches, unlinks, operations and failures, by seed.
//
// After each step both have told the same events and counts, in the same order, and have refused the same
// operations for the same reasons. At the end nothing is left.
//
// CH3_OFFLOAD_TARGET_SEEDS=N runs seeds 1 to N (default 40), CH3_OFFLOAD_TARGET_STEPS=N so many steps of each
// (default 4000).

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "engine/targets/target_entries.h"
#include "engine/targets/target_oracle.h"

namespace ch3_offload {
namespace target_model_test {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class Model {
 public:
  explicit Model(std::uint64_t seed)
      : random_(seed),
        config_{static_cast<std::uint32_t>(seed % 7), seed % 5 != 0, seed % 3 == 0},
        limits_{seed % 2 == 0 ? 1000 : 30 + seed % 20, seed % 4 == 0 ? 12U : 500U,
                seed % 6 == 0 ? 9U : 1000U},
        bits_(seed % 8 == 0 ? 200 : 3),
        masks_(seed % 9 == 0 ? 100 : 4),
        resources_(limits_, registers_),
        table_(config_, resources_, listener_),
        oracle_(config_, limits_) {
    EXPECT_EQ(resources_.prepare(), Status::kOk);
    if (seed % 3 == 0) listener_.capacity = oracle_.told.capacity = 6 + seed % 10;
  }

  void run(std::uint64_t steps) {
    for (std::uint64_t step = 0; step < steps && !testing::Test::HasFailure(); ++step) {
      one_step();
      compare(step);
    }
    while (!operations_.empty()) finish(below(operations_.size()), TargetFailure::kNone);
    for (const Linked& one : linked_) table_.unlink(one.id), oracle_.unlink(one.entry);
    TargetDescription all;
    all.options = kNoOverflowEvent | kNoCommEvent;
    table_.search(all, TargetTable::SearchMode::kDelete);
    oracle_.search(all, TargetTable::SearchMode::kDelete);
    for (const Linked& one : linked_) table_.unlink(one.id), oracle_.unlink(one.entry);
    compare(steps);
    EXPECT_TRUE(table_.is_unused());
    EXPECT_EQ(resources_.entries(), 0u);
    EXPECT_EQ(resources_.headers(), 0u);
    EXPECT_EQ(listener_.reserved(), 0u);
  }

 private:
  struct Linked {
    TargetId id{};
    TargetOracle::EntryPtr entry;
  };
  struct InFlight {
    TargetHeader header;
    TargetPlacement placement;
    TargetOracle::Operation expected;
  };

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  bool one_in(std::uint64_t many) { return below(many) == 0; }

  TargetKey random_key() {
    return {MatchBits{below(bits_)},
            make_physical_id(static_cast<std::uint32_t>(below(2)), static_cast<std::uint32_t>(below(2)))};
  }

  TargetKey random_ignore() {
    static constexpr ProcessId kAny[] = {kExactProcess, kAnyProcess, kAnyNid, kAnyPid};
    if (one_in(6)) return kIgnoreKey;
    return {MatchBits{one_in(2) ? 0 : below(masks_)}, kAny[below(4)]};
  }

  TargetDescription random_description() {
    static std::array<std::byte, 64> memory;
    TargetDescription its;
    its.key = random_key();
    its.ignore = random_ignore();
    its.start = one_in(10) ? nullptr : memory.data();
    its.length_bytes = one_in(8) ? 0 : below(memory.size() + 1);
    its.options = one_in(10) ? 0 : kAllowPut | (one_in(3) ? 0 : kAllowGet);
    for (const std::uint32_t option : {kUseOnce, kManageLocal, kNoTruncate, kAdvanceByUnexpected})
      if (one_in(3)) its.options |= option;
    for (std::uint32_t option = kNoUnexpectedHeader; option <= kCountBytes; option <<= 1)
      if (option != kAdvanceByUnexpected && one_in(5)) its.options |= option;
    if (one_in(2)) its.min_free_bytes = below(40);
    if (one_in(6)) its.user = UserId{static_cast<std::uint32_t>(below(2))};
    if (one_in(2)) its.counter = CounterId{1 + below(3)};
    its.cookie = reinterpret_cast<void*>(++last_cookie_);
    return its;
  }

  TargetHeader random_header() {
    TargetHeader header;
    header.key = random_key();
    header.length_bytes = one_in(20) ? UINT64_MAX - below(4) : below(50);
    header.offset_bytes = one_in(20) ? UINT64_MAX - below(60) : one_in(2) ? 0 : below(70);
    header.header_data = random_();
    header.user = UserId{static_cast<std::uint32_t>(below(2))};
    header.operation = static_cast<TargetOperation>(one_in(2) ? 0 : below(5));
    header.atomic_type = static_cast<std::uint8_t>(below(3));
    return header;
  }

  void one_step() {
    const std::uint64_t what = below(100);
    if (what < 40) {
      arrive();
    } else if (what < 62) {
      append();
    } else if (what < 80) {
      if (!operations_.empty())
        finish(below(operations_.size()), one_in(12) ? TargetFailure::kUndeliverable : TargetFailure::kNone);
    } else if (what < 88) {
      const TargetDescription its = random_description();
      const auto mode = one_in(2) ? TargetTable::SearchMode::kOnly : TargetTable::SearchMode::kDelete;
      table_.search(its, mode);
      oracle_.search(its, mode);
    } else if (what < 96) {
      unlink();
    } else if (what == 96) {
      table_.disable();
      oracle_.enabled = false;
    } else {
      table_.enable();
      oracle_.enable();
    }
  }

  void append() {
    const TargetDescription its = random_description();
    const TargetListKind list = one_in(3) ? TargetListKind::kOverflow : TargetListKind::kPriority;
    Linked one;
    TargetOracle::EntryPtr entry;
    const Status expected = oracle_.append(its, list, entry);
    EXPECT_EQ(table_.append(its, list, one.id), expected);
    EXPECT_EQ(one.id == kNoTarget, entry == nullptr);
    if (entry == nullptr) return;
    one.entry = entry;
    linked_.push_back(one);
  }

  void unlink() {
    if (linked_.empty()) return;
    const std::size_t which = below(linked_.size());
    const TargetTable::Unlinked expected = oracle_.unlink(linked_[which].entry);
    EXPECT_EQ(table_.unlink(linked_[which].id), expected);
    if (expected == TargetTable::Unlinked::kInUse) return;
    linked_[which] = linked_.back();
    linked_.pop_back();
  }

  void arrive() {
    InFlight one;
    one.header = random_header();
    one.placement = table_.arrive(one.header);
    one.expected = oracle_.arrive(one.header);
    EXPECT_EQ(one.placement.failure, one.expected.failure);
    if (one.placement.failure != one.expected.failure || one.placement.is_refused()) return;
    EXPECT_EQ(one.placement.offset_bytes, one.expected.offset);
    EXPECT_EQ(one.placement.length_bytes, one.expected.length);
    EXPECT_EQ(one.placement.entry->its.cookie, one.expected.entry->its.cookie);
    operations_.push_back(one);
    if (one_in(2)) finish(operations_.size() - 1, TargetFailure::kNone);
  }

  void finish(std::size_t which, TargetFailure failure) {
    const InFlight one = operations_[which];
    operations_[which] = operations_.back();
    operations_.pop_back();
    table_.finish(one.placement, one.header, failure);
    oracle_.finish(one.expected, one.header, failure);
  }

  void compare(std::uint64_t step) {
    const auto in_words = [](const std::vector<TargetEvent>& events) {
      std::string text;
      for (const TargetEvent& event : events) text += long_form(event) + "\n";
      return text;
    };
    ASSERT_EQ(in_words(listener_.events), in_words(oracle_.told.events)) << "step " << step;
    ASSERT_EQ(listener_.counters, oracle_.told.counters) << "step " << step;
    ASSERT_EQ(listener_.reserved(), oracle_.told.reserved()) << "step " << step;
    ASSERT_EQ(table_.waiting_headers(), oracle_.waiting()) << "step " << step;
    ASSERT_EQ(table_.in_flight(), oracle_.in_flight()) << "step " << step;
    ASSERT_EQ(resources_.entries(), oracle_.entries()) << "step " << step;
    ASSERT_EQ(table_.is_enabled(), oracle_.enabled) << "step " << step;
    ASSERT_EQ(resources_.registers.drops, oracle_.registers.drops) << "step " << step;
    ASSERT_EQ(resources_.registers.permission_violations, oracle_.registers.permission_violations);
    ASSERT_EQ(resources_.registers.operation_violations, oracle_.registers.operation_violations);
    if (!one_in(3)) return;  // The client takes its events.
    listener_.events.clear();
    oracle_.told.events.clear();
  }

  std::mt19937_64 random_;
  const TableConfig config_;
  const TargetLimits limits_;
  const std::uint64_t bits_, masks_;
  RecordingListener listener_;
  TargetRegisterWords registers_;
  TargetResources resources_;
  TargetTable table_;
  TargetOracle oracle_;
  std::vector<Linked> linked_;
  std::vector<InFlight> operations_;
  std::uintptr_t last_cookie_ = 0;
};

TEST(TargetModel, TheTableDoesAsTheOracle) {
  const std::uint64_t seeds = from_environment("CH3_OFFLOAD_TARGET_SEEDS", 40);
  const std::uint64_t steps = from_environment("CH3_OFFLOAD_TARGET_STEPS", 4000);
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model(seed).run(steps);
  }
}

}  // namespace target_model_test
}  // namespace ch3_offload

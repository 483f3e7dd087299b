// The matcher alone: entries are the test's, and a naive matcher that walks lists is the judge.

#include "engine/matcher.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <list>
#include <memory>
#include <new>
#include <vector>

#include "rdma/seeded_random.h"

namespace ch3_offload {
namespace {

constexpr MatchBits kNoBits{0};
constexpr MatchBits kShapes[] = {kIgnoreNothing, kIgnoreSource, kIgnoreTag, kIgnoreSourceAndTag};
constexpr MatchBits kMessage = make_match_bits(3, 5, 7);

/// A matcher and entries that live as long as it does.
class MatcherTest : public testing::Test {
 protected:
  PostedEntry& post(MatchBits bits, MatchBits ignore) {
    PostedEntry& receive = receives.emplace_back();
    receive.bits = bits;
    receive.ignore = ignore;
    matcher->post(receive);
    return receive;
  }
  UnexpectedEntry& add(MatchBits bits) {
    UnexpectedEntry& message = messages.emplace_back();
    message.bits = bits;
    matcher->add(message);
    return message;
  }

  std::deque<PostedEntry> receives;
  std::deque<UnexpectedEntry> messages;
  std::unique_ptr<Matcher> matcher = std::make_unique<Matcher>(kNoBits);
};

/// A message that differs from kMessage in the chosen parts.
constexpr MatchBits message_with(bool other_context, bool other_source, bool other_tag) {
  return make_match_bits(other_context ? 4 : 3, other_source ? 6 : 5, other_tag ? 8 : 7);
}

TEST_F(MatcherTest, EveryWildcardIgnoresItsPartAndNothingElse) {
  for (const MatchBits ignore : kShapes) {
    for (unsigned differs = 0; differs < 8; ++differs) {
      const MatchBits message = message_with((differs & 1) != 0, (differs & 2) != 0, (differs & 4) != 0);
      const bool expected = matches(message, kMessage, ignore);
      PostedEntry& receive = post(kMessage, ignore);
      EXPECT_EQ(matcher->take_posted(message), expected ? &receive : nullptr) << raw(ignore) << " " << differs;
      if (!expected) matcher->remove(receive);
      UnexpectedEntry& arrived = add(message);
      EXPECT_EQ(matcher->find_unexpected(kMessage, ignore), expected ? &arrived : nullptr)
          << raw(ignore) << " " << differs;
      matcher->remove(arrived);
    }
  }
}

TEST_F(MatcherTest, WhatAReceiveIgnoresMayHoldAnything) {
  for (const MatchBits ignore : kShapes) {
    PostedEntry& receive = post(kMessage | (MatchBits{UINT64_MAX} & ignore), ignore);
    EXPECT_EQ(matcher->take_posted(kMessage), &receive) << raw(ignore);
  }
}

TEST_F(MatcherTest, TheReceiveThatWasPostedFirstWinsInEveryOrderOfShapes) {
  std::vector<MatchBits> order(std::begin(kShapes), std::end(kShapes));
  order.push_back(MatchBits{0x0000'0001'0000'0001});  // Odd: the lowest bit of source and of tag.
  const auto by_value = [](MatchBits a, MatchBits b) { return raw(a) < raw(b); };
  std::sort(order.begin(), order.end(), by_value);
  do {
    std::vector<PostedEntry*> posted;
    for (const MatchBits ignore : order) posted.push_back(&post(kMessage, ignore));
    for (PostedEntry* const expected : posted) EXPECT_EQ(matcher->take_posted(kMessage), expected);
    EXPECT_EQ(matcher->take_posted(kMessage), nullptr);
  } while (std::next_permutation(order.begin(), order.end(), by_value));
}

TEST_F(MatcherTest, ReceivesOfOneKeyAreTakenInOrder) {
  std::vector<PostedEntry*> posted;
  for (int i = 0; i < 100; ++i) posted.push_back(&post(kMessage, kShapes[i % 4]));
  for (PostedEntry* const expected : posted) EXPECT_EQ(matcher->take_posted(kMessage), expected);
}

TEST_F(MatcherTest, ACancelledReceiveIsPassedOver) {
  for (const MatchBits ignore : {kIgnoreNothing, kIgnoreSource, kIgnoreTag, kIgnoreSourceAndTag, MatchBits{1}}) {
    PostedEntry& first = post(kMessage, ignore);
    PostedEntry& second = post(kMessage, ignore);
    PostedEntry& third = post(kMessage, ignore);
    matcher->remove(second);
    EXPECT_EQ(matcher->posted_depth(), 2u);
    EXPECT_EQ(matcher->take_posted(kMessage), &first);
    EXPECT_EQ(matcher->take_posted(kMessage), &third);
    EXPECT_EQ(matcher->posted_depth(), 0u);
    matcher->post(second);  // An entry can be used again.
    EXPECT_EQ(matcher->take_posted(kMessage), &second);
  }
}

TEST_F(MatcherTest, ACancelledReceiveLeavesThoseOfOtherShapesInOrder) {
  PostedEntry& exact = post(kMessage, kIgnoreNothing);
  PostedEntry& any_source = post(kMessage, kIgnoreSource);
  PostedEntry& odd = post(kMessage, MatchBits{1});
  matcher->remove(exact);
  EXPECT_EQ(matcher->take_posted(kMessage), &any_source);
  EXPECT_EQ(matcher->take_posted(kMessage), &odd);
}

TEST_F(MatcherTest, PostedReceivesAreWalkedInOrderOfPosting) {
  std::vector<const PostedEntry*> expected;
  for (unsigned i = 0; i < 20; ++i) expected.push_back(&post(make_match_bits(1, 2, i), kShapes[i % 4]));
  matcher->remove(const_cast<PostedEntry&>(*expected[7]));
  expected.erase(expected.begin() + 7);
  std::vector<const PostedEntry*> walked;
  for (const PostedEntry* entry = matcher->first_posted(); entry != nullptr; entry = Matcher::next_posted(*entry)) {
    walked.push_back(entry);
  }
  EXPECT_EQ(walked, expected);
}

TEST_F(MatcherTest, AReceiveFindsTheOldestUnexpectedMessageOfItsShape) {
  UnexpectedEntry& other_context = add(message_with(true, false, false));
  UnexpectedEntry& other_tag = add(message_with(false, false, true));
  UnexpectedEntry& other_source = add(message_with(false, true, false));
  UnexpectedEntry& same = add(kMessage);
  UnexpectedEntry& same_again = add(kMessage);
  EXPECT_EQ(matcher->find_unexpected(kMessage, kIgnoreNothing), &same);
  EXPECT_EQ(matcher->find_unexpected(kMessage, kIgnoreSource), &other_source);
  EXPECT_EQ(matcher->find_unexpected(kMessage, kIgnoreTag), &other_tag);
  EXPECT_EQ(matcher->find_unexpected(kMessage, kIgnoreSourceAndTag), &other_tag);
  EXPECT_EQ(matcher->find_unexpected(kMessage, MatchBits{UINT64_MAX}), &other_context);
  matcher->remove(same);
  EXPECT_EQ(matcher->find_unexpected(kMessage, kIgnoreNothing), &same_again);
  EXPECT_EQ(matcher->unexpected_depth(), 4u);
}

TEST_F(MatcherTest, MessagesThatArriveAfterAWildcardLookedAreFoundByTheNext) {
  for (const MatchBits ignore : kShapes) {
    UnexpectedEntry& before = add(kMessage);
    EXPECT_EQ(matcher->find_unexpected(kMessage, ignore), &before);
    UnexpectedEntry& after = add(kMessage);
    matcher->remove(before);
    EXPECT_EQ(matcher->find_unexpected(kMessage, ignore), &after);
    matcher->remove(after);
    EXPECT_EQ(matcher->find_unexpected(kMessage, ignore), nullptr);
  }
}

TEST_F(MatcherTest, MessagesWithTheSameBitsAreWalkedFromTheNewest) {
  UnexpectedEntry& oldest = add(kMessage);
  add(message_with(false, true, false));
  UnexpectedEntry& newest = add(kMessage);
  ASSERT_EQ(matcher->newest_with_bits(kMessage), &newest);
  EXPECT_EQ(Matcher::older_with_same_bits(newest), &oldest);
  EXPECT_EQ(Matcher::older_with_same_bits(oldest), nullptr);
  EXPECT_EQ(matcher->newest_with_bits(message_with(true, true, true)), nullptr);
}

TEST_F(MatcherTest, AnyOtherMaskMatchesBitByBit) {
  const MatchBits ignore{0x0000'00F0'0000'0100};
  PostedEntry& receive = post(kMessage, ignore);
  for (unsigned bit = 0; bit < 64; ++bit) {
    const MatchBits message{raw(kMessage) ^ std::uint64_t{1} << bit};
    const bool ignored = (raw(ignore) >> bit & 1) != 0;
    EXPECT_EQ(matcher->take_posted(message), ignored ? &receive : nullptr) << bit;
    if (ignored) matcher->post(receive);
    UnexpectedEntry& arrived = add(message);
    EXPECT_EQ(matcher->find_unexpected(kMessage, ignore), ignored ? &arrived : nullptr) << bit;
    matcher->remove(arrived);
  }
}

TEST_F(MatcherTest, AnOddReceiveDoesNotOvertakeAnOlderOneOfAnotherMask) {
  PostedEntry& first = post(kMessage, MatchBits{2});
  PostedEntry& second = post(kMessage, MatchBits{1});
  EXPECT_EQ(matcher->take_posted(kMessage), &first);
  EXPECT_EQ(matcher->take_posted(kMessage), &second);
}

TEST_F(MatcherTest, AlwaysIgnoredBitsNeverTakePart) {
  const MatchBits always{0x4000'0000};  // One bit of the tag.
  matcher = std::make_unique<Matcher>(always);
  for (const MatchBits ignore : {kIgnoreNothing, kIgnoreSource, kIgnoreTag, kIgnoreSourceAndTag, MatchBits{1}}) {
    for (const MatchBits also : {kNoBits, always}) {  // Whether the mask names them, too, is all the same.
      PostedEntry& receive = post(kMessage | also, ignore | also);
      EXPECT_EQ(matcher->take_posted(kMessage | (always & ~also)), &receive) << raw(ignore);
      UnexpectedEntry& arrived = add(kMessage | also);
      EXPECT_EQ(matcher->find_unexpected(kMessage, ignore | also), &arrived) << raw(ignore);
      EXPECT_EQ(matcher->newest_with_bits(kMessage), &arrived);
      EXPECT_EQ(matcher->newest_with_bits(kMessage | always), &arrived);
      matcher->remove(arrived);
    }
  }
}

/// Entries whose memory is locked at some time: from then on, each page of them that is looked at is counted.
template <class Entry>
class LockedEntries {
 public:
  explicit LockedEntries(std::size_t count) {
    page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = (count * sizeof(Entry) + page_bytes - 1) / page_bytes * page_bytes;
    void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    first_ = static_cast<Entry*>(memory);
    for (std::size_t i = 0; i < count; ++i) new (first_ + i) Entry;
  }
  ~LockedEntries() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(first_, bytes_);
  }
  LockedEntries(const LockedEntries&) = delete;
  LockedEntries& operator=(const LockedEntries&) = delete;

  Entry& operator[](std::size_t i) { return first_[i]; }
  void lock() {
    faults = 0;
    struct sigaction count {};
    count.sa_flags = SA_SIGINFO;
    count.sa_sigaction = [](int, siginfo_t* fault, void*) {
      faults = faults + 1;
      const auto address = reinterpret_cast<std::uintptr_t>(fault->si_addr) / page_bytes * page_bytes;
      if (mprotect(reinterpret_cast<void*>(address), page_bytes, PROT_READ | PROT_WRITE) != 0) _exit(1);
    };
    ASSERT_EQ(sigaction(SIGSEGV, &count, &before_), 0);
    ASSERT_EQ(mprotect(first_, bytes_, PROT_NONE), 0);
  }
  std::size_t pages() const { return bytes_ / page_bytes; }

  static inline volatile std::size_t faults = 0;  ///< Pages that were looked at.

 private:
  static inline std::size_t page_bytes = 0;
  Entry* first_ = nullptr;
  std::size_t bytes_ = 0;
  struct sigaction before_ {};
};

/// Entries that do not match share buckets with those that do: a look-up may pass one or two of them.
constexpr std::size_t kMostPassed = 12;

constexpr unsigned kDepth = 10'000;

/// O(1) in the number of entries that do not match, without a clock: they are not looked at.
TEST_F(MatcherTest, TenThousandReceivesThatDoNotMatchAreNotLookedAt) {
  LockedEntries<PostedEntry> locked(4 * kDepth);
  post(message_with(true, true, true), kIgnoreNothing);
  for (unsigned i = 0; i < 4 * kDepth; ++i) {
    locked[i].bits = make_match_bits(3, static_cast<std::uint16_t>(1000 + i % 64), 1000 + i);
    if (i % 4 == 3) locked[i].bits = make_match_bits(static_cast<std::uint16_t>(100 + i), 5, 7);
    locked[i].ignore = kShapes[i % 4];
    matcher->post(locked[i]);
  }
  // A neighbour in the list of all receives is touched when an entry is unlinked: not one of those.
  post(message_with(true, true, true), kIgnoreNothing);
  ASSERT_NO_FATAL_FAILURE(locked.lock());
  for (const MatchBits ignore : kShapes) {
    PostedEntry& receive = post(kMessage, ignore);
    EXPECT_EQ(matcher->take_posted(kMessage), &receive);
    matcher->post(receive);
    matcher->remove(receive);
  }
  EXPECT_EQ(matcher->take_posted(kMessage), nullptr);
  EXPECT_EQ(matcher->posted_depth(), 4 * kDepth + 2);
  EXPECT_GT(locked.pages(), 10 * kMostPassed);
  EXPECT_LE(locked.faults, kMostPassed);
}

TEST_F(MatcherTest, TenThousandReceivesBehindTheOldestAreNotLookedAt) {
  for (const MatchBits ignore : kShapes) {
    matcher = std::make_unique<Matcher>(kNoBits);
    LockedEntries<PostedEntry> locked(kDepth);
    PostedEntry& oldest = post(kMessage, ignore);
    post(kMessage, ignore);
    for (unsigned i = 0; i < kDepth; ++i) {
      locked[i].bits = kMessage;
      locked[i].ignore = ignore;
      matcher->post(locked[i]);
    }
    ASSERT_NO_FATAL_FAILURE(locked.lock());
    EXPECT_EQ(matcher->take_posted(kMessage), &oldest);
    EXPECT_LE(locked.faults, 1u);  // The newest, which the oldest of a key points to.
  }
}

TEST_F(MatcherTest, TenThousandMessagesThatDoNotMatchAreNotLookedAt) {
  LockedEntries<UnexpectedEntry> locked(kDepth);
  for (unsigned i = 0; i < kDepth; ++i) {
    locked[i].bits = make_match_bits(4, static_cast<std::uint16_t>(1000 + i % 64), 1000 + i);
    matcher->add(locked[i]);
  }
  add(message_with(true, true, true));  // The neighbour in the list of arrivals.
  // The first of each shape builds its index, once.
  for (const MatchBits ignore : kShapes) EXPECT_EQ(matcher->find_unexpected(kMessage, ignore), nullptr);
  ASSERT_NO_FATAL_FAILURE(locked.lock());
  for (const MatchBits ignore : kShapes) {
    UnexpectedEntry& message = add(kMessage);
    EXPECT_EQ(matcher->find_unexpected(kMessage, ignore), &message);
    EXPECT_EQ(matcher->find_unexpected(message_with(false, true, true), kIgnoreNothing), nullptr);
    matcher->remove(message);
  }
  EXPECT_EQ(matcher->unexpected_depth(), kDepth + 1);
  EXPECT_GT(locked.pages(), 10 * kMostPassed);
  EXPECT_LE(locked.faults, kMostPassed);
}

/// The same rules, by walking lists.
class NaiveMatcher {
 public:
  explicit NaiveMatcher(MatchBits always_ignored) : always_(always_ignored) {}
  PostedEntry* take_posted(MatchBits message) {
    for (PostedEntry* const receive : posted) {
      if (!matches(message, receive->bits, receive->ignore | always_)) continue;
      posted.remove(receive);
      return receive;
    }
    return nullptr;
  }
  UnexpectedEntry* find_unexpected(MatchBits bits, MatchBits ignore) const {
    for (UnexpectedEntry* const message : unexpected) {
      if (matches(message->bits, bits, ignore | always_)) return message;
    }
    return nullptr;
  }

  std::list<PostedEntry*> posted;
  std::list<UnexpectedEntry*> unexpected;

 private:
  const MatchBits always_;
};

/// Few values, so that keys meet; `wide`: many, so that tables grow.
MatchBits random_bits(SeededRandom& random, bool wide) {
  const std::uint64_t spread = wide ? 500 : 3;
  return make_match_bits(static_cast<std::uint16_t>(random.below(2)), static_cast<std::uint16_t>(random.below(spread)),
                         static_cast<std::uint32_t>(random.below(spread)) | (random.chance(0.3) ? 0x4000'0000U : 0U));
}

TEST(MatcherAtRandom, DoesWhatANaiveMatcherDoes) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    const MatchBits always{seed % 2 == 0 ? 0U : 0x4000'0000U};
    const bool wide = seed % 3 == 0;
    const std::size_t depth = wide ? 1500 : 40;
    Matcher matcher(always);
    NaiveMatcher naive(always);
    std::deque<PostedEntry> receives;
    std::deque<UnexpectedEntry> messages;
    for (int step = 0; step < 4000; ++step) {
      const MatchBits bits = random_bits(random, wide);
      const std::uint64_t dice = random.below(100);
      if (dice < 45 && naive.unexpected.size() < depth) {  // A message arrives.
        PostedEntry* const expected = naive.take_posted(bits);
        ASSERT_EQ(matcher.take_posted(bits), expected);
        if (expected != nullptr) continue;
        UnexpectedEntry& message = messages.emplace_back();
        message.bits = bits;
        matcher.add(message);
        naive.unexpected.push_back(&message);
      } else if (dice < 90) {  // A receive, or a probe.
        MatchBits ignore = kShapes[random.below(4)];
        if (random.chance(0.2)) ignore = MatchBits{random.next() & random.next()};
        UnexpectedEntry* const expected = naive.find_unexpected(bits, ignore);
        ASSERT_EQ(matcher.find_unexpected(bits, ignore), expected);
        if (random.chance(0.1)) continue;
        if (expected != nullptr) {
          matcher.remove(*expected);
          naive.unexpected.remove(expected);
        } else if (naive.posted.size() < depth) {
          PostedEntry& receive = receives.emplace_back();
          receive.bits = bits;
          receive.ignore = ignore;
          matcher.post(receive);
          naive.posted.push_back(&receive);
        }
      } else if (dice < 95 && !naive.posted.empty()) {
        auto victim = naive.posted.begin();
        std::advance(victim, static_cast<std::ptrdiff_t>(random.below(naive.posted.size())));
        matcher.remove(**victim);
        naive.posted.erase(victim);
      } else if (!naive.unexpected.empty()) {
        auto victim = naive.unexpected.begin();
        std::advance(victim, static_cast<std::ptrdiff_t>(random.below(naive.unexpected.size())));
        matcher.remove(**victim);
        naive.unexpected.erase(victim);
      }
      ASSERT_EQ(matcher.posted_depth(), naive.posted.size());
      ASSERT_EQ(matcher.unexpected_depth(), naive.unexpected.size());
    }
    PostedEntry* receive = matcher.first_posted();
    for (const PostedEntry* const expected : naive.posted) {
      ASSERT_EQ(receive, expected);
      receive = Matcher::next_posted(*receive);
    }
    EXPECT_EQ(receive, nullptr);
    UnexpectedEntry* message = matcher.first_unexpected();
    for (const UnexpectedEntry* const expected : naive.unexpected) {
      ASSERT_EQ(message, expected);
      message = Matcher::next_unexpected(*message);
    }
    EXPECT_EQ(message, nullptr);
  }
}

}  // namespace
}  // namespace ch3_offload

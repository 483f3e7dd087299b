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
#include <set>
#include <vector>

#include "rdma/seeded_random.h"

namespace ch3_offload {
namespace {

constexpr MatchKey kNoKey{0};
constexpr MatchKey kShapes[] = {kIgnoreNothing, kIgnoreInitiator, kIgnoreTag, kIgnoreInitiatorAndTag};
constexpr MatchKey kMessage = make_match_key(3, 5, 7);

/// A matcher and entries that live as long as it does.
class MatcherTest : public testing::Test {
 protected:
  PostedEntry& post(MatchKey key, MatchKey ignore) {
    PostedEntry& receive = receives.emplace_back();
    receive.key = key;
    receive.ignore = ignore;
    matcher->post(receive);
    return receive;
  }
  UnexpectedEntry& add(MatchKey key) {
    UnexpectedEntry& message = messages.emplace_back();
    message.key = key;
    matcher->add(message);
    return message;
  }

  std::deque<PostedEntry> receives;
  std::deque<UnexpectedEntry> messages;
  std::unique_ptr<Matcher> matcher = std::make_unique<Matcher>(kNoKey);
};

/// A message that differs from kMessage in the chosen parts.
constexpr MatchKey message_with(bool other_context, bool other_source, bool other_tag) {
  return make_match_key(other_context ? 4 : 3, other_source ? 6 : 5, other_tag ? 8 : 7);
}

TEST_F(MatcherTest, EveryWildcardIgnoresItsPartAndNothingElse) {
  for (const MatchKey ignore : kShapes) {
    for (unsigned differs = 0; differs < 8; ++differs) {
      const MatchKey message = message_with((differs & 1) != 0, (differs & 2) != 0, (differs & 4) != 0);
      const bool expected = matches(message, kMessage, ignore);
      PostedEntry& receive = post(kMessage, ignore);
      EXPECT_EQ(matcher->take_posted(message), expected ? &receive : nullptr)
          << ignore.bits << "/" << ignore.initiator << " " << differs;
      if (!expected) matcher->remove(receive);
      UnexpectedEntry& arrived = add(message);
      EXPECT_EQ(matcher->find_unexpected(kMessage, ignore), expected ? &arrived : nullptr)
          << ignore.bits << "/" << ignore.initiator << " " << differs;
      matcher->remove(arrived);
    }
  }
}

TEST_F(MatcherTest, WhatAReceiveIgnoresMayHoldAnything) {
  for (const MatchKey ignore : kShapes) {
    PostedEntry& receive = post(kMessage | (~MatchKey{} & ignore), ignore);
    EXPECT_EQ(matcher->take_posted(kMessage), &receive) << ignore.bits << "/" << ignore.initiator;
  }
}

TEST_F(MatcherTest, TheReceiveThatWasPostedFirstWinsInEveryOrderOfShapes) {
  std::vector<MatchKey> order(std::begin(kShapes), std::end(kShapes));
  order.push_back(MatchKey{1, 1});  // Odd: the lowest bit of initiator and of tag.
  const auto by_value = [](const MatchKey& a, const MatchKey& b) {
    return std::pair(a.bits, a.initiator) < std::pair(b.bits, b.initiator);
  };
  std::sort(order.begin(), order.end(), by_value);
  do {
    std::vector<PostedEntry*> posted;
    for (const MatchKey ignore : order) posted.push_back(&post(kMessage, ignore));
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
  for (const MatchKey ignore :
       {kIgnoreNothing, kIgnoreInitiator, kIgnoreTag, kIgnoreInitiatorAndTag, MatchKey{1}}) {
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
  PostedEntry& any_source = post(kMessage, kIgnoreInitiator);
  PostedEntry& odd = post(kMessage, MatchKey{1});
  matcher->remove(exact);
  EXPECT_EQ(matcher->take_posted(kMessage), &any_source);
  EXPECT_EQ(matcher->take_posted(kMessage), &odd);
}

TEST_F(MatcherTest, TheChosenReceivesAreTakenOutAndTheOthersKeepTheirOrder) {
  std::vector<PostedEntry*> posted;
  for (unsigned i = 0; i < 100; ++i) posted.push_back(&post(make_match_key(1, 2, i / 20), kShapes[i % 4]));
  for (unsigned i = 0; i < 10; ++i) posted.push_back(&post(make_match_key(1, 2, i / 5), MatchKey{1, 0}));
  const auto is_chosen = [](const PostedEntry& entry) { return entry.stamp % 3 == 0; };
  std::set<const PostedEntry*> taken;
  matcher->take_posted_if(is_chosen, [&](PostedEntry& entry) { EXPECT_TRUE(taken.insert(&entry).second); });
  std::vector<PostedEntry*> left;
  for (PostedEntry* const entry : posted) {
    EXPECT_EQ(taken.count(entry) != 0, is_chosen(*entry));
    if (!is_chosen(*entry)) left.push_back(entry);
  }
  EXPECT_EQ(matcher->posted_depth(), left.size());
  for (PostedEntry* const expected : left) EXPECT_EQ(matcher->take_posted(expected->key), expected);
}

TEST_F(MatcherTest, AReceiveFindsTheOldestUnexpectedMessageOfItsShape) {
  UnexpectedEntry& other_context = add(message_with(true, false, false));
  UnexpectedEntry& other_tag = add(message_with(false, false, true));
  UnexpectedEntry& other_source = add(message_with(false, true, false));
  UnexpectedEntry& same = add(kMessage);
  UnexpectedEntry& same_again = add(kMessage);
  EXPECT_EQ(matcher->find_unexpected(kMessage, kIgnoreNothing), &same);
  EXPECT_EQ(matcher->find_unexpected(kMessage, kIgnoreInitiator), &other_source);
  EXPECT_EQ(matcher->find_unexpected(kMessage, kIgnoreTag), &other_tag);
  EXPECT_EQ(matcher->find_unexpected(kMessage, kIgnoreInitiatorAndTag), &other_tag);
  EXPECT_EQ(matcher->find_unexpected(kMessage, MatchKey{UINT64_MAX}), &other_context);
  matcher->remove(same);
  EXPECT_EQ(matcher->find_unexpected(kMessage, kIgnoreNothing), &same_again);
  EXPECT_EQ(matcher->unexpected_depth(), 4u);
}

TEST_F(MatcherTest, MessagesThatArriveAfterAWildcardLookedAreFoundByTheNext) {
  for (const MatchKey ignore : kShapes) {
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
  ASSERT_EQ(matcher->newest_with_key(kMessage), &newest);
  EXPECT_EQ(Matcher::older_with_same_key(newest), &oldest);
  EXPECT_EQ(Matcher::older_with_same_key(oldest), nullptr);
  EXPECT_EQ(matcher->newest_with_key(message_with(true, true, true)), nullptr);
}

TEST_F(MatcherTest, AnyOtherMaskMatchesBitByBit) {
  const MatchKey ignore{0x00F0'0000'0000'0100, 0x8001'0000};
  PostedEntry& receive = post(kMessage, ignore);
  for (unsigned bit = 0; bit < 96; ++bit) {
    MatchKey other{};
    (bit < 64 ? other.bits = std::uint64_t{1} << bit : other.initiator = 1U << (bit - 64));
    const MatchKey message{kMessage.bits ^ other.bits, kMessage.initiator ^ other.initiator};
    const bool ignored = (ignore & other) == other;
    EXPECT_EQ(matcher->take_posted(message), ignored ? &receive : nullptr) << bit;
    if (ignored) matcher->post(receive);
    UnexpectedEntry& arrived = add(message);
    EXPECT_EQ(matcher->find_unexpected(kMessage, ignore), ignored ? &arrived : nullptr) << bit;
    matcher->remove(arrived);
  }
}

TEST_F(MatcherTest, AnOddReceiveDoesNotOvertakeAnOlderOneOfAnotherMask) {
  PostedEntry& first = post(kMessage, MatchKey{2});
  PostedEntry& second = post(kMessage, MatchKey{1});
  EXPECT_EQ(matcher->take_posted(kMessage), &first);
  EXPECT_EQ(matcher->take_posted(kMessage), &second);
}

TEST_F(MatcherTest, AlwaysIgnoredBitsNeverTakePart) {
  const MatchKey always{0x4000'0000};  // One bit of the tag.
  matcher = std::make_unique<Matcher>(always);
  for (const MatchKey ignore :
       {kIgnoreNothing, kIgnoreInitiator, kIgnoreTag, kIgnoreInitiatorAndTag, MatchKey{1}}) {
    for (const MatchKey also : {kNoKey, always}) {  // Whether the mask names them, too, is all the same.
      PostedEntry& receive = post(kMessage | also, ignore | also);
      EXPECT_EQ(matcher->take_posted(kMessage | (always & ~also)), &receive)
          << ignore.bits << "/" << ignore.initiator;
      UnexpectedEntry& arrived = add(kMessage | also);
      EXPECT_EQ(matcher->find_unexpected(kMessage, ignore | also), &arrived)
          << ignore.bits << "/" << ignore.initiator;
      EXPECT_EQ(matcher->newest_with_key(kMessage), &arrived);
      EXPECT_EQ(matcher->newest_with_key(kMessage | always), &arrived);
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
    locked[i].key = make_match_key(3, static_cast<std::uint16_t>(1000 + i % 64), 1000 + i);
    if (i % 4 == 3) locked[i].key = make_match_key(static_cast<std::uint16_t>(100 + i), 5, 7);
    locked[i].ignore = kShapes[i % 4];
    matcher->post(locked[i]);
  }
  // A neighbour in the list of all receives is touched when an entry is unlinked: not one of those.
  post(message_with(true, true, true), kIgnoreNothing);
  ASSERT_NO_FATAL_FAILURE(locked.lock());
  for (const MatchKey ignore : kShapes) {
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
  for (const MatchKey ignore : kShapes) {
    matcher = std::make_unique<Matcher>(kNoKey);
    LockedEntries<PostedEntry> locked(kDepth);
    PostedEntry& oldest = post(kMessage, ignore);
    post(kMessage, ignore);
    for (unsigned i = 0; i < kDepth; ++i) {
      locked[i].key = kMessage;
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
    locked[i].key = make_match_key(4, static_cast<std::uint16_t>(1000 + i % 64), 1000 + i);
    matcher->add(locked[i]);
  }
  add(message_with(true, true, true));  // The neighbour in the list of arrivals.
  // The first of each shape builds its index, once.
  for (const MatchKey ignore : kShapes) EXPECT_EQ(matcher->find_unexpected(kMessage, ignore), nullptr);
  ASSERT_NO_FATAL_FAILURE(locked.lock());
  for (const MatchKey ignore : kShapes) {
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
  explicit NaiveMatcher(MatchKey always_ignored) : always_(always_ignored) {}
  PostedEntry* take_posted(MatchKey message) {
    for (PostedEntry* const receive : posted) {
      if (!matches(message, receive->key, receive->ignore | always_)) continue;
      posted.remove(receive);
      return receive;
    }
    return nullptr;
  }
  UnexpectedEntry* find_unexpected(MatchKey key, MatchKey ignore) const {
    for (UnexpectedEntry* const message : unexpected) {
      if (matches(message->key, key, ignore | always_)) return message;
    }
    return nullptr;
  }

  std::list<PostedEntry*> posted;
  std::list<UnexpectedEntry*> unexpected;

 private:
  const MatchKey always_;
};

/// Few values, so that keys meet; `wide`: many, so that tables grow.
MatchKey random_key(SeededRandom& random, bool wide) {
  const std::uint64_t spread = wide ? 500 : 3;
  return make_match_key(
      static_cast<std::uint16_t>(random.below(2)), static_cast<std::uint16_t>(random.below(spread)),
      static_cast<std::uint32_t>(random.below(spread)) | (random.chance(0.3) ? 0x4000'0000U : 0U));
}

TEST(MatcherAtRandom, DoesWhatANaiveMatcherDoes) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    const MatchKey always{seed % 2 == 0 ? 0U : 0x4000'0000U};
    const bool wide = seed % 3 == 0;
    const std::size_t depth = wide ? 1500 : 40;
    Matcher matcher(always);
    NaiveMatcher naive(always);
    std::deque<PostedEntry> receives;
    std::deque<UnexpectedEntry> messages;
    for (int step = 0; step < 4000; ++step) {
      const MatchKey key = random_key(random, wide);
      const std::uint64_t dice = random.below(100);
      if (dice < 45 && naive.unexpected.size() < depth) {  // A message arrives.
        PostedEntry* const expected = naive.take_posted(key);
        ASSERT_EQ(matcher.take_posted(key), expected);
        if (expected != nullptr) continue;
        UnexpectedEntry& message = messages.emplace_back();
        message.key = key;
        matcher.add(message);
        naive.unexpected.push_back(&message);
      } else if (dice < 90) {  // A receive, or a probe.
        MatchKey ignore = kShapes[random.below(4)];
        if (random.chance(0.2))
          ignore = MatchKey{random.next() & random.next(),
                            static_cast<std::uint32_t>(random.next() & random.next())};
        UnexpectedEntry* const expected = naive.find_unexpected(key, ignore);
        ASSERT_EQ(matcher.find_unexpected(key, ignore), expected);
        if (random.chance(0.1)) continue;
        if (expected != nullptr) {
          matcher.remove(*expected);
          naive.unexpected.remove(expected);
        } else if (naive.posted.size() < depth) {
          PostedEntry& receive = receives.emplace_back();
          receive.key = key;
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
    std::set<const PostedEntry*> left(naive.posted.begin(), naive.posted.end());
    const auto all = [](const PostedEntry&) { return true; };
    matcher.take_posted_if(all, [&](const PostedEntry& receive) { EXPECT_EQ(left.erase(&receive), 1u); });
    EXPECT_TRUE(left.empty());
    std::set<const UnexpectedEntry*> kept(naive.unexpected.begin(), naive.unexpected.end());
    const auto every = [](const UnexpectedEntry&) { return true; };
    matcher.take_unexpected_if(every,
                               [&](const UnexpectedEntry& message) { EXPECT_EQ(kept.erase(&message), 1u); });
    EXPECT_TRUE(kept.empty());
    EXPECT_EQ(matcher.unexpected_depth(), 0u);
  }
}

}  // namespace
}  // namespace ch3_offload

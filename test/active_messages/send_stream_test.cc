// SendStream against a receiver that refuses at random and takes only the next message: each arrives once, in order.

#include "active_messages/send_stream.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <string>
#include <vector>

namespace ch3_offload::active_messages {
namespace {

constexpr std::uint64_t kNever = UINT64_MAX;

class Sender {
 public:
  Sender() : messages_(SendStream::kWindow), numbers_(SendStream::kWindow) {
    for (OutgoingMessage& message : messages_) free_.push_back(&message);
  }

  bool add() {
    if (!stream.has_room()) return false;
    OutgoingMessage& message = *free_.front();
    free_.pop_front();
    number_of(message) = stream.next_sequence();
    stream.add(message);
    return true;
  }
  void free(OutgoingMessage& message) { free_.push_back(&message); }
  std::uint64_t& number_of(const OutgoingMessage& message) {
    return numbers_[static_cast<std::size_t>(&message - messages_.data())];
  }
  void end(OutgoingMessage& message, bool is_taken, std::uint64_t now_ns) {
    stream.ended(message, is_taken, now_ns, [&](OutgoingMessage& one) { free(one); });
  }
  std::size_t unused() const { return free_.size(); }

  SendStream stream;

 private:
  std::vector<OutgoingMessage> messages_;
  std::vector<std::uint64_t> numbers_;
  std::deque<OutgoingMessage*> free_;
};

TEST(SendStream, EachMessageArrivesOnceAndInOrder) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Sender sender;
    std::deque<OutgoingMessage*> under_way;
    std::deque<std::pair<OutgoingMessage*, bool>> answers;
    std::uint64_t now_ns = 1, expected = 0, added = 0;
    const std::uint64_t wanted = 300;
    const unsigned refusals = random() % 80;  // percent
    for (int step = 0; expected < wanted || !sender.stream.is_empty(); ++step) {
      ASSERT_LT(step, 1'000'000) << "it does not end";
      now_ns += random() % 50'000;
      if (added < wanted && random() % 2 == 0 && sender.add()) ++added;
      std::uint64_t due_ns = kNever;
      if (sender.stream.is_due(now_ns, due_ns)) {
        EXPECT_TRUE(sender.stream.post_all(now_ns, [&](OutgoingMessage& message) {
          if (random() % 10 == 0) return SendStream::Posted::kAgain;
          under_way.push_back(&message);
          return SendStream::Posted::kOk;
        }));
      }
      if (!under_way.empty() && random() % 2 == 0) {
        OutgoingMessage* const message = under_way.front();
        under_way.pop_front();
        const bool is_taken = random() % 100 >= refusals;
        if (is_taken && sender.number_of(*message) == expected) ++expected;
        answers.emplace_back(message, is_taken);
      }
      if (!answers.empty() && random() % 2 == 0) {
        const auto [message, is_taken] = answers.front();
        answers.pop_front();
        sender.end(*message, is_taken, now_ns);
      }
    }
    EXPECT_EQ(expected, wanted);
    EXPECT_EQ(sender.unused(), SendStream::kWindow);
  }
}

TEST(SendStream, HasRoomForAWindow) {
  Sender sender;
  for (std::size_t i = 0; i < SendStream::kWindow; ++i) EXPECT_TRUE(sender.add());
  EXPECT_FALSE(sender.add());
}

TEST(SendStream, RefusalsDoubleTheDelay) {
  Sender sender;
  ASSERT_TRUE(sender.add());
  std::uint64_t now_ns = 1000;
  std::vector<std::uint64_t> delays;
  for (int i = 0; i < 12; ++i) {
    OutgoingMessage* posted = nullptr;
    EXPECT_TRUE(sender.stream.post_all(now_ns, [&](OutgoingMessage& message) {
      posted = &message;
      return SendStream::Posted::kOk;
    }));
    ASSERT_NE(posted, nullptr);
    sender.end(*posted, false, now_ns);
    std::uint64_t due_ns = kNever;
    EXPECT_FALSE(sender.stream.is_due(now_ns, due_ns));
    delays.push_back(due_ns - now_ns);
    now_ns = due_ns;
    EXPECT_TRUE(sender.stream.is_due(now_ns, due_ns));
  }
  EXPECT_EQ(delays[0], SendStream::kLeastDelayNs);
  EXPECT_EQ(delays[1], 2 * SendStream::kLeastDelayNs);
  EXPECT_EQ(delays.back(), SendStream::kMostDelayNs);
}

TEST(SendStream, GivesUpWhatIsNotPosted) {
  Sender sender;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(sender.add());
  std::vector<OutgoingMessage*> posted;
  EXPECT_FALSE(sender.stream.post_all(1, [&](OutgoingMessage& message) {
    if (posted.size() == 3) return SendStream::Posted::kFailed;
    posted.push_back(&message);
    return SendStream::Posted::kOk;
  }));
  sender.stream.give_up([&](OutgoingMessage& message) { sender.free(message); });
  EXPECT_EQ(sender.unused(), SendStream::kWindow - 3);
  EXPECT_FALSE(sender.stream.is_empty());
  sender.end(*posted[1], true, 2);
  sender.end(*posted[0], true, 2);
  sender.end(*posted[2], true, 2);
  EXPECT_TRUE(sender.stream.is_empty());
  EXPECT_EQ(sender.unused(), SendStream::kWindow);
}

}  // namespace
}  // namespace ch3_offload::active_messages

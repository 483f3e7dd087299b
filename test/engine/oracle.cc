#include "engine/oracle.h"

#include <algorithm>
#include <cstdio>

namespace ch3_offload {

namespace {
std::string hex(MatchKey key) {
  char text[32];
  std::snprintf(text, sizeof text, "%016llx/%08x", static_cast<unsigned long long>(key.bits), key.initiator);
  return text;
}
}  // namespace

Oracle::Oracle(std::uint32_t processes, MatchKey always_ignored, std::uint64_t channel_bits)
    : processes_(processes),
      always_ignored_(always_ignored),
      channel_bits_(channel_bits),
      waiting_(std::size_t{processes} * processes),
      posted_(processes),
      lost_(std::size_t{processes} * processes) {}

std::string Oracle::name(const SentMessage& message) {
  return "message #" + std::to_string(message.seed) + " " + std::to_string(message.from) + "->" +
         std::to_string(message.to) + " key " + hex(message.key) + " length " +
         std::to_string(message.length_bytes) + " sent at " + std::to_string(message.sent_at);
}

std::string Oracle::name(const PostedReceive& receive) {
  return "receive of " + std::to_string(receive.at) + " key " + hex(receive.key) + " ignore " +
         hex(receive.ignore) + " posted at " + std::to_string(receive.stamp);
}

void Oracle::fail(const std::string& what) {
  if (failures_.size() < 20) failures_.push_back("at step " + std::to_string(now_) + ": " + what);
}

void Oracle::sent(SentMessage& message) {
  message.sent_at = ++now_;
  waiting_[message.from * processes_ + message.to].push_back(&message);
  ++waiting_count_;
}

void Oracle::stop_waiting(SentMessage& message, SentMessage::State state) {
  std::vector<SentMessage*>& list = waiting_[message.from * processes_ + message.to];
  const auto found = std::find(list.begin(), list.end(), &message);
  if (found != list.end()) {
    list.erase(found);
    --waiting_count_;
  }
  message.state = state;
}

void Oracle::send_refused(SentMessage& message) {
  ++now_;
  stop_waiting(message, SentMessage::State::kRefused);
}

void Oracle::send_done(SentMessage& message) {
  ++now_;
  if (message.send_done) fail("a send was done twice: " + name(message));
  message.send_done = true;
  // 3.4: a synchronous send completes only when a matching receive was posted. (A purge frees it, too.)
  if (message.mode != SendMode::kSynchronous || message.state != SentMessage::State::kWaiting ||
      message.maybe_purged || is_lost(message.from, message.to)) {
    return;
  }
  message.matched_at = now_;
  for (const PostedReceive* receive : posted_[message.to]) {
    if (match(message, receive->key, receive->ignore)) return;
  }
  fail("a synchronous send was done and no receive had been posted for it: " + name(message));
}

void Oracle::cancel_requested(SentMessage& message) { message.cancel_at = ++now_; }

void Oracle::cancel_decided(SentMessage& message, bool cancelled) {
  ++now_;
  if (!cancelled) {
    message.cancel_at = kNever;
    return;
  }
  if (message.state != SentMessage::State::kWaiting) {
    if (!is_lost(message.from, message.to)) fail("a message was cancelled though a receive took it: " + name(message));
  } else if (message.gone_at < message.cancel_at) {
    fail("a message was cancelled though a later one of its sender had been received in its place: " + name(message));
  } else if (message.matched_at != kNever && !message.maybe_purged) {
    fail("a synchronous send was done, hence matched, and then cancelled: " + name(message));
  }
  stop_waiting(message, SentMessage::State::kCancelled);
}

void Oracle::posted(PostedReceive& receive) {
  receive.stamp = ++now_;
  posted_[receive.at].push_back(&receive);
  ++posted_count_;
}

void Oracle::remove(PostedReceive& receive) {
  std::vector<PostedReceive*>& list = posted_[receive.at];
  const auto found = std::find(list.begin(), list.end(), &receive);
  if (found == list.end()) return fail("a receive was over twice: " + name(receive));
  list.erase(found);
  --posted_count_;
}

/// Notes what follows from facts 1 and 2, and whether it contradicts what was noted before.
void Oracle::found_oldest(std::uint32_t at, MatchKey key, MatchKey ignore, std::uint64_t stamp,
                          SentMessage& message) {
  if (message.state != SentMessage::State::kWaiting) return fail("found a message that is gone: " + name(message));
  if (message.to != at) return fail("process " + std::to_string(at) + " found a message of another: " + name(message));
  if (!match(message, key, ignore)) {
    return fail("key " + hex(key) + " ignore " + hex(ignore) + " do not match " + name(message));
  }
  if (stamp >= message.gone_before) {
    fail("overtaken: a later message of the same sender that matches the same request was found first; now " +
         name(message) + " was found by a request of " + std::to_string(stamp) + ", should be gone by " +
         std::to_string(message.gone_before));
  }
  if (stamp >= message.matched_at) {
    fail("a synchronous send was done before the receive that took it was posted: " + name(message));
  }
  for (SentMessage* earlier : waiting_[message.from * processes_ + message.to]) {
    if (earlier == &message) break;
    if (channel_of(*earlier) != channel_of(message)) continue;
    if (!match(*earlier, key, ignore) || earlier->maybe_purged) continue;
    earlier->gone_before = std::min(earlier->gone_before, stamp);
    earlier->gone_at = std::min(earlier->gone_at, now_);
  }
  for (PostedReceive* older : posted_[at]) {
    if (older->stamp >= stamp) break;
    if (older->maybe_purged || !match(message, older->key, older->ignore)) continue;
    older->matched_at = std::min(older->matched_at, now_);
    older->bounds.push_back({message.from, channel_of(message), message.sent_at});
  }
}

void Oracle::received(PostedReceive& receive, SentMessage& message) {
  ++now_;
  found_oldest(receive.at, receive.key, receive.ignore, receive.stamp, message);
  if (message.sent_at >= receive.matched_at) {
    fail("passed over: a receive posted later took a message that this one matches, before the message it got "
         "had been sent: " + name(receive) + " got " + name(message));
  }
  for (const PostedReceive::Bound& bound : receive.bounds) {
    if (bound.from == message.from && bound.channel == channel_of(message) && bound.sent_at < message.sent_at) {
      fail("crossed: a receive posted later got an earlier message of this sender: " + name(receive) + " got " +
           name(message));
    }
  }
  remove(receive);
  stop_waiting(message, SentMessage::State::kReceived);
}

void Oracle::receive_lost(PostedReceive& receive) {
  ++now_;
  remove(receive);
}

void Oracle::receive_cancelled(PostedReceive& receive) {
  ++now_;
  if (receive.matched_at != kNever) {
    fail("a receive was taken back unmatched though one posted later had taken a message that it matches: " +
         name(receive));
  }
  remove(receive);
}

void Oracle::taken(std::uint32_t at, MatchKey key, MatchKey ignore, SentMessage& message) {
  ++now_;
  found_oldest(at, key, ignore, now_, message);
  stop_waiting(message, SentMessage::State::kTaken);
}

void Oracle::taken_received(SentMessage& message) {
  ++now_;
  if (message.state != SentMessage::State::kTaken) fail("received as taken, and was not: " + name(message));
  message.state = SentMessage::State::kReceived;
}

void Oracle::probed(std::uint32_t at, MatchKey key, MatchKey ignore, SentMessage& message) {
  ++now_;
  found_oldest(at, key, ignore, now_, message);
}

void Oracle::purged(std::uint32_t at, const MatchPattern& doomed, const MatchPattern& spared) {
  ++now_;
  const auto is_doomed = [&](const MatchKey& key) {
    return matches(key, doomed.key, doomed.ignore) && !matches(key, spared.key, spared.ignore);
  };
  for (PostedReceive* receive : posted_[at]) receive->maybe_purged |= is_doomed(receive->key);
  for (std::uint32_t from = 0; from < processes_; ++from)
    for (SentMessage* message : waiting_[from * processes_ + at])
      message->maybe_purged |= is_doomed(message->key);
}

void Oracle::lost(std::uint32_t one, std::uint32_t other) {
  lost_[one * processes_ + other] = lost_[other * processes_ + one] = true;
}

void Oracle::died(std::uint32_t process) {
  ++now_;
  for (std::uint32_t other = 0; other < processes_; ++other) lost(process, other);
  posted_count_ -= posted_[process].size();
  posted_[process].clear();
  for (std::uint32_t from = 0; from < processes_; ++from) {
    std::vector<SentMessage*>& list = waiting_[from * processes_ + process];
    for (SentMessage* message : list) message->state = SentMessage::State::kRefused;
    waiting_count_ -= list.size();
    list.clear();
  }
}

SentMessage* Oracle::find(std::uint32_t to, MatchKey key, std::size_t length_bytes, std::uint64_t seed) {
  for (std::uint32_t from = 0; from < processes_; ++from) {
    for (SentMessage* message : waiting_[from * processes_ + to]) {
      if (message->key == key && message->length_bytes == length_bytes &&
          (seed == 0 || message->seed == seed)) {
        return message;
      }
    }
  }
  return nullptr;
}

void Oracle::check_at_rest() {
  ++now_;
  for (const std::vector<PostedReceive*>& list : posted_) {
    for (const PostedReceive* receive : list) {
      if (receive->matched_at != kNever) fail("a receive should have matched long ago: " + name(*receive));
    }
  }
  for (const std::vector<SentMessage*>& list : waiting_) {
    for (const SentMessage* message : list) {
      if (message->maybe_purged || is_lost(message->from, message->to)) continue;
      if (message->gone_before != kNever) {
        fail("skipped: a later message of the same sender was received in its place: " + name(*message));
      }
      if (message->matched_at != kNever) {
        fail("a synchronous send was done and nobody received it: " + name(*message));
      }
      for (const PostedReceive* receive : posted_[message->to]) {
        if (!match(*message, receive->key, receive->ignore)) continue;
        fail("all is at rest and a receive did not get the message it matches: " + name(*receive) + ", " +
             name(*message));
        break;
      }
    }
  }
}

}  // namespace ch3_offload

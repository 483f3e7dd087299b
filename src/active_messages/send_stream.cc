#include "active_messages/send_stream.h"

#include <algorithm>

namespace ch3_offload::active_messages {

std::size_t SendStream::waiting() const noexcept {
  std::size_t number = 0;
  while (number < count_ && at(count_ - number - 1)->state == OutgoingMessage::State::kWaiting) ++number;
  return number;
}

bool SendStream::is_due(std::uint64_t now_ns, std::uint64_t& due_ns) const noexcept {
  if (has_refused_ || waiting() == 0) return false;
  if (now_ns >= not_before_ns_) return true;
  due_ns = std::min(due_ns, not_before_ns_);
  return false;
}

void SendStream::delay(std::uint64_t now_ns) noexcept {
  delay_ns_ = std::clamp(2 * delay_ns_, kLeastDelayNs, kMostDelayNs);
  not_before_ns_ = now_ns + delay_ns_;
}

}  // namespace ch3_offload::active_messages

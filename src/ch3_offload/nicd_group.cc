#include "ch3_offload/nicd_group.h"

#include <algorithm>
#include <new>
#include <span>

#include "rdma/shm/unix_socket.h"

namespace ch3_offload {
namespace {

/// What the processes of a group have given to the network may leave for so long after the last has ended.
constexpr std::uint64_t kLastFramesNs = 1'000'000'000;
/// How often a sleeping processor looks at a group without clients, which is about to end.
constexpr std::uint64_t kLonelyPollNs = 500'000;
/// How often a late client is looked at.
constexpr std::uint64_t kLateLookNs = 20'000'000;
/// Lines that are kept for clients that come later. The first ones say how the network was made.
constexpr std::size_t kMostLines = 64;

}  // namespace

// Clients.

void NicdGroup::tell(LogScope scope, const char* line) {
  for (const auto& client : clients_) client->server().warn(scope, line);
  try {
    if (lines_.size() < kMostLines) lines_.emplace_back(scope, line);
  } catch (const std::bad_alloc&) {  // Those that come later miss a line.
  }
}

void NicdGroup::add(std::unique_ptr<NicdClient> client) {
  for (const auto& [scope, line] : lines_) client->server().warn(scope, line);
  clients_.push_back(std::move(client));
}

void NicdGroup::drop(const NicdClient& client, std::string_view why) noexcept {
  if (!why.empty()) static_cast<void>(send_with_files(client.socket(), std::as_bytes(std::span(why)), {}));
  try {
    departing_.push_back(client.own_providers());
  } catch (const std::bad_alloc&) {  // They leave at once, and this process waits for that.
  }
  std::erase_if(clients_, [&](const auto& one) { return one.get() == &client; });
}

bool NicdGroup::has_late() const noexcept {
  return std::ranges::any_of(clients_, [](const auto& client) { return client->is_late(); });
}

void NicdGroup::take_over() noexcept {
  for (const auto& client : clients_)
    if (client->is_late()) client->be_late();
  disarm();
}

bool NicdGroup::is_deserted() const noexcept {
  return std::ranges::all_of(clients_,
                             [](const auto& client) { return client->is_late() && client->has_left(); }) &&
         is_network_at_rest();
}

std::size_t NicdGroup::turn() noexcept {
  if (is_leaving_) return 0;
  std::size_t happened = poll_network() + see_off();
  // By number: during a turn, others may come and go.
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    NicdClient& client = *clients_[i];
    if (client.is_late()) continue;
    happened += client.turn();
    if (const char* const why = client.complaint()) [[unlikely]] {
      drop(client, why);
      ++happened;
    }
  }
  return happened;
}

void NicdGroup::tell_counters() noexcept {
  for (const auto& client : clients_) client->server().tell_counters();
}

void NicdGroup::look_at_sockets() noexcept {
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    NicdClient& client = *clients_[i];
    const Receipt receipt = client.shares().listen();
    if (receipt == Receipt::kNothing || receipt == Receipt::kMessage) continue;
    if (client.is_late()) {
      client.leave();
      continue;
    }
    // What it gave before it ended, first. No more than its ring holds: others may write to that, too.
    for (std::size_t turns = 0; turns <= kCommandRingBytes / kLineBytes; ++turns) {
      static_cast<void>(client.turn());
      if (!client.has_commands() || client.complaint() != nullptr) break;
    }
    drop(client, receipt == Receipt::kClosed ? "" : "it speaks out of turn");
  }
}

// The end.

/// What clients that have ended had for themselves. Returns how many have left.
std::size_t NicdGroup::see_off() noexcept {
  if (departing_.empty()) [[likely]]
    return 0;
  return std::erase_if(departing_, [](const auto& own) { return own->leave(); });
}

/// Brings the end of each forward.
bool NicdGroup::leave() noexcept {
  see_off();
  return departing_.empty() &&
         static_cast<std::size_t>(std::ranges::count_if(
             providers_, [](const auto& provider) { return provider->leave(); })) == providers_.size();
}

bool NicdGroup::is_over(std::uint64_t now_ns) noexcept {
  if (!clients_.empty()) {
    alone_since_ns_ = 0;
    return false;
  }
  if (alone_since_ns_ == 0) alone_since_ns_ = now_ns;
  is_leaving_ = is_leaving_ || is_network_at_rest() || now_ns - alone_since_ns_ > kLastFramesNs;
  return is_leaving_ && leave();
}

// Waiting.

bool NicdGroup::arm() noexcept {
  if (is_leaving_) return true;
  bool is_armed = arm_network();
  for (const auto& client : clients_) is_armed = is_armed && (client->is_late() || client->arm());
  return is_armed;
}

void NicdGroup::disarm() noexcept {
  if (is_leaving_) return;
  disarm_network();
  for (const auto& client : clients_)
    if (!client->is_late()) client->disarm();
}

/// The end of a group without clients comes without a descriptor, and so does that of a late client.
void NicdGroup::add_to(SleepSet& set) const noexcept {
  if (clients_.empty() || !departing_.empty()) set.end_after(kLonelyPollNs);
  if (is_leaving_) return;
  add_network(set);
  for (const auto& client : clients_) {
    if (client->is_late())
      set.end_after(kLateLookNs);
    else
      client->add_to(set);
  }
}

}  // namespace ch3_offload

#include "ch3_offload/nicd_group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <span>

#include "ch3_offload/settings.h"
#include "rdma/shm/unix_socket.h"

namespace ch3_offload {
namespace {

/// What the processes of a group have given to the network may leave for so long after the last has ended.
constexpr std::uint64_t kLastFramesNs = 1'000'000'000;
/// Lines that are kept for clients that come later. The first ones say how the network was made.
constexpr std::size_t kMostLines = 64;

}  // namespace

// Hellos.

NicdHello make_hello(const ch3_offload_config_t& config) {
  NicdHello hello;
  hello.rank = config.rank;
  hello.job_size = config.job_size;
  hello.local_rank = config.local_rank;
  hello.local_size = config.local_size;
  hello.always_ignored_bits = config.always_ignored_bits;
  hello.channel_bits = config.channel_bits;
  static_assert(sizeof hello.secret == sizeof config.secret);
  std::memcpy(hello.secret.data(), config.secret, sizeof config.secret);
  std::string text;
  for (const Setting& setting : settings())
    text += std::string(setting.variable) + "=" + to_string(setting, config) + "\n";
  set_text(hello.settings, text);
  return hello;
}

std::optional<std::string> read_hello(const NicdHello& hello, std::vector<std::string>& values,
                                      ch3_offload_config_t& config) {
  ch3_offload_config_default(&config);
  config.rank = hello.rank;
  config.job_size = hello.job_size;
  config.local_rank = hello.local_rank;
  config.local_size = hello.local_size;
  config.always_ignored_bits = hello.always_ignored_bits;
  config.channel_bits = hello.channel_bits;
  std::memcpy(config.secret, hello.secret.data(), sizeof config.secret);
  std::string_view text = text_of(hello.settings);
  values.clear();
  values.reserve(settings().size());  // The pointers into them stay.
  for (const Setting& setting : settings()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::string prefix = std::string(setting.variable) + "=";
    if (!line.starts_with(prefix) || line.size() == text.size())
      return "its settings are cut: it is of another version, or they are too long";
    values.emplace_back(line.substr(prefix.size()));
    text.remove_prefix(line.size() + 1);
    if (auto why = set_from_text(setting, values.back().c_str(), config)) return why;
  }
  std::array<char, 512> message;
  if (ch3_offload_config_check(&config, message.data(), message.size()) != 0) return message.data();
  return {};
}

// Clients.

void NicdGroup::log_line(void* context, LogScope scope, const char* line) {
  auto& group = *static_cast<NicdGroup*>(context);
  // This process is the node's.
  if (scope == LogScope::kProcess) scope = LogScope::kNode;
  for (const auto& client : group.clients_) client->server().warn(scope, line);
  try {
    if (group.lines_.size() < kMostLines) group.lines_.emplace_back(scope, line);
  } catch (const std::bad_alloc&) {  // Those that come later miss a line.
  }
}

void NicdGroup::add(std::unique_ptr<NicdClient> client) {
  for (const auto& [scope, line] : lines_) client->server().warn(scope, line);
  clients_.push_back(std::move(client));
}

void NicdGroup::drop(std::size_t index, std::string_view why) noexcept {
  if (!why.empty())
    static_cast<void>(send_with_files(clients_[index]->socket(), std::as_bytes(std::span(why)), {}));
  clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(index));
}

std::size_t NicdGroup::turn() noexcept {
  if (is_leaving_) return 0;
  std::size_t happened = poll_network();
  for (std::size_t i = 0; i < clients_.size();) {
    happened += clients_[i]->turn();
    if (const char* const why = clients_[i]->complaint()) [[unlikely]] {
      drop(i, why);
      ++happened;
    } else {
      ++i;
    }
  }
  return happened;
}

void NicdGroup::tell_counters() noexcept {
  for (const auto& client : clients_) client->server().tell_counters();
}

void NicdGroup::look_at_sockets() noexcept {
  for (std::size_t i = 0; i < clients_.size();) {
    const Receipt receipt = clients_[i]->shares().listen();
    if (receipt == Receipt::kNothing || receipt == Receipt::kMessage) {
      ++i;
    } else {
      // What it gave before it ended, first. No more than its ring holds: others may write to that, too.
      NicdClient& client = *clients_[i];
      for (std::size_t turns = 0; turns <= kCommandRingBytes / kLineBytes; ++turns) {
        static_cast<void>(client.turn());
        if (!client.has_commands() || client.complaint() != nullptr) break;
      }
      drop(i, receipt == Receipt::kClosed ? "" : "it speaks out of turn");
    }
  }
}

// The end.

/// Brings the end of each forward.
bool NicdGroup::leave() noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(
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
  for (const auto& client : clients_) is_armed = is_armed && client->arm();
  return is_armed;
}

void NicdGroup::disarm() noexcept {
  if (is_leaving_) return;
  disarm_network();
  for (const auto& client : clients_) client->disarm();
}

void NicdGroup::add_descriptors(std::vector<pollfd>& descriptors) const {
  if (is_leaving_) return;
  add_network(descriptors);
  for (const auto& client : clients_) client->add_descriptors(descriptors);
}

std::uint64_t NicdGroup::next_due_ns() const noexcept {
  std::uint64_t due_ns = UINT64_MAX;
  for (const auto& client : clients_) due_ns = std::min(due_ns, client->next_due_ns());
  return due_ns;
}

}  // namespace ch3_offload

#include "ch3_offload/nicd_newcomers.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "rdma/shm/unix_socket.h"

namespace ch3_offload {
namespace {

/// How often a sleeping processor looks whether a silent connection has been silent for too long.
constexpr std::uint64_t kSilentPollNs = 1'000'000'000;

bool is_without_descriptor(int error) noexcept { return error == EMFILE || error == ENFILE; }

}  // namespace

NicdNewcomers::NicdNewcomers(FileDescriptor listener)
    : listener_(std::move(listener)), hello_(std::make_unique<NicdHello>()) {
  silent_.reserve(kMostSilent + 1);
}

void NicdNewcomers::look(std::uint64_t now_ns, const Admit& admit) noexcept {
  std::erase_if(silent_, [&](Silent& one) { return !is_still_silent(one, now_ns, admit); });
  if (now_ns < aside_until_ns_) return;
  aside_until_ns_ = 0;
  for (std::size_t accepted = 0; accepted < kMostAccepted; ++accepted) {
    Silent newcomer{accept(now_ns, admit), now_ns, 0};
    if (!newcomer.socket.valid()) return;
    const PeerCredentials who = peer_credentials(newcomer.socket);
    if (who.uid != ::geteuid()) continue;
    newcomer.pid = who.pid;
    if (!is_still_silent(newcomer, now_ns, admit)) continue;
    silent_.push_back(std::move(newcomer));
    if (silent_.size() > kMostSilent) make_way(now_ns, admit);
  }
}

/// Invalid: nobody has connected, or there is no descriptor.
FileDescriptor NicdNewcomers::accept(std::uint64_t now_ns, const Admit& admit) {
  for (;;) {
    FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid() || !is_without_descriptor(errno)) return socket;
    if (silent_.empty()) {
      aside_until_ns_ = now_ns + kAsideNs;
      return {};
    }
    make_way(now_ns, admit);
  }
}

/// One of the silent is so no more: it is admitted, or closed. REQUIRES: there is one.
void NicdNewcomers::make_way(std::uint64_t now_ns, const Admit& admit) {
  auto chosen = silent_.begin();
  std::ptrdiff_t most = 0;
  for (auto one = silent_.begin(); one != silent_.end(); ++one) {
    const std::ptrdiff_t of_process = std::ranges::count(silent_, one->pid, &Silent::pid);
    if (of_process <= most) continue;
    most = of_process;
    chosen = one;
  }
  static_cast<void>(is_still_silent(*chosen, now_ns, admit));
  silent_.erase(chosen);
}

/// Hands `one` over if it has said who it is.
bool NicdNewcomers::is_still_silent(Silent& one, std::uint64_t now_ns, const Admit& admit) {
  switch (receive_with_files(one.socket, std::as_writable_bytes(std::span(hello_.get(), 1)), {})) {
    case Receipt::kNothing: return now_ns - one.since_ns <= kSilenceNs;
    case Receipt::kMessage: admit(std::move(one.socket), *hello_); return false;
    case Receipt::kNoDescriptor:
    case Receipt::kWithoutFiles:
    case Receipt::kClosed:
    case Receipt::kInvalid: return false;  // Its socket is closed. It sees that, and says what may be wrong.
  }
  return false;
}

void NicdNewcomers::add_to(SleepSet& set) const noexcept {
  if (aside_until_ns_ == 0)
    set.add(listener_.get());
  else
    set.end_after(kAsideNs);
  for (const Silent& one : silent_) set.add(one.socket.get());
  if (!silent_.empty()) set.end_after(kSilentPollNs);
}

}  // namespace ch3_offload

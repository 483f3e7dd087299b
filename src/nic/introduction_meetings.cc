// Connections and their frames. See introductions.h.

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "nic/introductions.h"
#include "rdma/monotonic_clock.h"

namespace ch3_offload {
namespace {

constexpr int kMostAccepts = 16;  ///< At one listener, in one poll().
/// A guest that may make way for another one has had so long.
constexpr std::uint64_t kGraceNs = 100'000'000;
/// Between dials of a process that has hung up.
constexpr std::uint64_t kHungUpNs = 50'000'000;

}  // namespace

bool Introductions::watch(int descriptor, Tag tag, std::size_t index, std::uint32_t events) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = std::uint64_t{static_cast<std::uint32_t>(tag)} << 32 | index;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0 ||
         (errno == EEXIST && ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor, &event) == 0);
}

void Introductions::update_watch(std::size_t index) noexcept {
  Meeting& meeting = *meetings_[index];
  if (meeting.step == Step::kFree) return;
  const std::uint32_t events =
      EPOLLIN | EPOLLRDHUP | (meeting.stream.wants_write() ? static_cast<std::uint32_t>(EPOLLOUT) : 0);
  if (meeting.watched == events) return;
  if (watch(meeting.stream.socket().get(), Tag::kMeeting, index, events)) meeting.watched = events;
}

/// Where it is in meetings_. SIZE_MAX: there is no memory.
std::size_t Introductions::begin(FrameStream stream, bool is_dial, bool is_on_node) noexcept {
  std::size_t index = 0;
  while (index < meetings_.size() && meetings_[index]->step != Step::kFree) ++index;
  try {
    if (index == meetings_.size()) meetings_.push_back(std::make_unique<Meeting>());
  } catch (const std::bad_alloc&) {
    return SIZE_MAX;
  }
  Meeting& meeting = *meetings_[index];
  meeting.step = Step::kAwaitsHello;
  meeting.is_dial = is_dial;
  meeting.is_on_node = is_on_node;
  meeting.watched = 0;
  meeting.since_ns = patience_ns_;
  meeting.transcript = Transcript(key_.bytes());
  meeting.stream = std::move(stream);
  ++(is_dial ? dials_ : guests_);
  return index;
}

void Introductions::end(std::size_t index) noexcept {
  Meeting& meeting = *meetings_[index];
  if (meeting.step == Step::kFree) return;
  --(meeting.is_dial ? dials_ : guests_);
  if (meeting.is_dial) processes_[meeting.process].dial = SIZE_MAX;
  // Closing alone is not enough: a child between vfork() and exec() holds the descriptor, too.
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, meeting.stream.socket().get(), nullptr));
  meeting.stream.close();
  meeting.step = Step::kFree;
  ++meeting.life;
}

void Introductions::send(Meeting& meeting, Frame& frame) noexcept {
  meeting.transcript.sign(meeting.self(), frame);
  meeting.stream.send(frame);
}

/// `to`: who is meant.
void Introductions::send_hello(Meeting& meeting, PhysicalId to) noexcept {
  Frame frame = make_frame(kProcesses, FrameKind::kHello);
  frame.as<ProcessHello>().receiver = static_cast<std::uint64_t>(to.process());
  send(meeting, frame);
}

void Introductions::send_card(Meeting& meeting, std::size_t process) noexcept {
  Frame frame = make_frame(kProcesses, FrameKind::kOffer);
  auto& card = frame.as<ProcessCard>();
  card.sender = static_cast<std::uint64_t>(self());
  card.receiver = static_cast<std::uint64_t>(processes_[process].id.process());
  card.instance = instance_;
  card.user = static_cast<std::uint32_t>(user_);
  card.own = index_of(config_.own);
  card.known_as = index_of(number_of(process));
  std::memcpy(card.card.data(), config_.card.data(), config_.card.size());
  send(meeting, frame);
}

// Accepting

void Introductions::pause() noexcept {
  paused_ = true;  // The connections stay in the backlog.
  for (const FileDescriptor* const listener : {&listeners_.node, &listeners_.net})
    static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener->get(), nullptr));
}

void Introductions::resume() noexcept {
  paused_ = !watch(listeners_.node.get(), Tag::kNode, 0, EPOLLIN) ||
            !watch(listeners_.net.get(), Tag::kNet, 0, EPOLLIN);
}

/// Ends the oldest guest, if it has had some time. Returns false if there is none.
bool Introductions::evict_guest() noexcept {
  std::size_t oldest = meetings_.size();
  for (std::size_t i = 0; i < meetings_.size(); ++i) {
    const Meeting& meeting = *meetings_[i];
    if (meeting.step == Step::kFree || meeting.is_dial || patience_ns_ - meeting.since_ns < kGraceNs)
      continue;
    if (oldest == meetings_.size() || meeting.since_ns < meetings_[oldest]->since_ns) oldest = i;
  }
  if (oldest == meetings_.size()) return false;
  end(oldest);
  return true;
}

std::size_t Introductions::accept_some(Listener& listener, Tag tag) noexcept {
  const FileDescriptor& from = tag == Tag::kNode ? listeners_.node : listeners_.net;
  std::size_t happened = 0;
  for (int i = 0; i < kMostAccepts; ++i) {
    if (guests_ >= kMostGuests && !evict_guest()) {
      pause();
      break;
    }
    int error_number = 0;
    FileDescriptor socket = accept_stream(from, error_number);
    if (!socket.valid()) {
      if (error_number != 0 && !evict_guest()) pause();
      break;
    }
    const std::size_t index =
        begin(FrameStream(std::move(socket), kProcesses, static_cast<int>(kGuestMs)), /*is_dial=*/false,
              /*is_on_node=*/tag == Tag::kNode);
    if (index == SIZE_MAX) break;  // It will dial again.
    update_watch(index);
    happened += hear(listener, index);  // Its Hello is there already, as a rule.
  }
  return happened;
}

/// Tells a guest why it is not wanted. It may have to send more before it reads that: the slot waits for its
/// close.
void Introductions::refuse(std::size_t index, Refusal reason) noexcept {
  meetings_[index]->stream.send(make_refusal(kProcesses, reason));
  meetings_[index]->step = Step::kAwaitsClose;
}

// Frames

std::size_t Introductions::hear(Listener& listener, std::size_t index) noexcept {
  std::size_t happened = 0;
  if (index >= meetings_.size()) return 0;
  Meeting& meeting = *meetings_[index];
  const std::uint32_t life = meeting.life;
  while (meeting.step != Step::kFree && meeting.life == life) {
    Frame frame;
    switch (meeting.stream.receive(frame)) {
      case FrameStream::Receipt::kFrame: happened += on_frame(listener, index, frame); break;
      case FrameStream::Receipt::kNothing: update_watch(index); return happened;
      case FrameStream::Receipt::kClosed: return happened + on_closed(listener, index);
      case FrameStream::Receipt::kVersion:
        if (meeting.is_dial) return happened + on_refusal(listener, index, describe(Refusal::kVersion));
        if (meeting.step == Step::kAwaitsClose) {
          end(index);
          return happened;
        }
        refuse(index, Refusal::kVersion);
        break;
      case FrameStream::Receipt::kMalformed:
        if (meeting.is_dial) return happened + on_refusal(listener, index, describe(Refusal::kStranger));
        end(index);
        return happened;
    }
  }
  return happened;
}

std::size_t Introductions::on_frame(Listener& listener, std::size_t index, const Frame& frame) noexcept {
  Meeting& meeting = *meetings_[index];
  if (meeting.is_dial && frame.kind == FrameKind::kRefuse)
    return on_refusal(listener, index, describe(Refusal{frame.as<RefuseBody>().reason}));
  if (meeting.step == Step::kAwaitsClose) {
    end(index);
    return 0;
  }
  if (!meeting.is_dial && !meeting.is_on_node && !key_.proves()) {
    refuse(index, Refusal::kNoSecret);
    return 1;
  }
  if (!meeting.transcript.verify(meeting.other(), frame)) {
    if (meeting.is_dial) return on_refusal(listener, index, describe(Refusal::kSecret));
    refuse(index, Refusal::kSecret);
    return 1;
  }
  const bool is_hello = meeting.step == Step::kAwaitsHello && frame.kind == FrameKind::kHello;
  const bool is_card = meeting.step == Step::kAwaitsCard && frame.kind == FrameKind::kOffer;
  if (is_hello && meeting.is_dial) {
    meeting.step = Step::kAwaitsCard;
    send_card(meeting, meeting.process);
    return 1;
  }
  if (is_hello) {
    if (frame.as<ProcessHello>().receiver != static_cast<std::uint64_t>(self())) {
      refuse(index, Refusal::kStranger);
    } else {
      meeting.step = Step::kAwaitsCard;
      send_hello(meeting, self_);
    }
    return 1;
  }
  if (is_card && meeting.is_dial) return on_card_of_acceptor(listener, index, frame);
  if (is_card) return on_card_of_guest(listener, index, frame);
  if (meeting.is_dial) return on_refusal(listener, index, "it does not follow the protocol");
  end(index);
  return 0;
}

/// If the dialler was introduced before, it is told the same again: it may not have heard.
std::size_t Introductions::on_card_of_guest(Listener& listener, std::size_t index,
                                            const Frame& frame) noexcept {
  Meeting& meeting = *meetings_[index];
  const auto& card = frame.as<ProcessCard>();
  const PhysicalId id = PhysicalId::of(ProcessId{card.sender});
  if (ProcessId{card.receiver} != self() || ProcessId{card.sender} == self() || !id.is_possible()) {
    refuse(index, Refusal::kStranger);
    return 1;
  }
  if (UserId{card.user} != user_) {
    refuse(index, Refusal::kUser);
    return 1;
  }
  const auto found = by_id_.find(card.sender);
  std::size_t process = found != by_id_.end() ? found->second : SIZE_MAX;
  const std::size_t before =
      process != SIZE_MAX && processes_[process].state == State::kMet ? process : SIZE_MAX;
  const Process* const known = process == SIZE_MAX ? nullptr : &processes_[process];
  const bool is_same = known != nullptr && known->state == State::kMet && known->instance == card.instance &&
                       known->known_as == PeerId{card.known_as};
  const bool is_sought = known != nullptr && known->state == State::kSought;
  if (!is_same && !is_sought && add(id, process) != Status::kOk) {
    refuse(index, Refusal::kFull);
    return 1;
  }
  if (before != SIZE_MAX && before != process) listener.on_replaced(number_of(before));
  std::size_t happened = 1 + tell(listener, process);
  if (!is_same) happened += met(listener, process, frame);
  send_card(meeting, process);
  meeting.step = Step::kAwaitsClose;
  return happened;
}

/// The process may have introduced itself meanwhile: then both say the same. If it was started anew in
/// between, the two that have its number fail at their first message, and get new numbers.
std::size_t Introductions::on_card_of_acceptor(Listener& listener, std::size_t index,
                                               const Frame& frame) noexcept {
  const Meeting& meeting = *meetings_[index];
  const std::size_t process = meeting.process;
  const auto& card = frame.as<ProcessCard>();
  if (ProcessId{card.sender} != processes_[process].id.process() || ProcessId{card.receiver} != self())
    return on_refusal(listener, index, describe(Refusal::kStranger));
  if (UserId{card.user} != user_) return on_refusal(listener, index, describe(Refusal::kUser));
  end(index);
  if (processes_[process].state != State::kSought) return 1;
  return met(listener, process, frame);
}

/// A dial has found somebody who is not, or does not want to be, the process that was meant.
std::size_t Introductions::on_refusal(Listener& listener, std::size_t index, std::string_view why) noexcept {
  const std::size_t process = meetings_[index]->process;
  end(index);
  return processes_[process].state == State::kSought ? unreachable(listener, process, why) : 0;
}

std::size_t Introductions::on_closed(Listener& listener, std::size_t index) noexcept {
  const Meeting& meeting = *meetings_[index];
  if (!meeting.is_dial) {
    end(index);
    return 0;
  }
  const std::size_t process = meeting.process;
  const bool is_refused = meeting.stream.error() == ECONNREFUSED;
  end(index);
  processes_[process].retry_at_ns = monotonic_ns() + kHungUpNs;
  if (!is_refused || processes_[process].state != State::kSought) return 0;
  return unreachable(listener, process, "nobody listens there");
}

}  // namespace ch3_offload

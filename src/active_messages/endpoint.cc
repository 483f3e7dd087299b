#include "active_messages/endpoint.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "active_messages/little_endian.h"
#include "rdma/monotonic_clock.h"

namespace ch3_offload::active_messages {
namespace {

constexpr std::uint64_t kNever = UINT64_MAX;
constexpr std::uint64_t kNsPerMs = 1'000'000;

int code_of(int ptl_code) noexcept {
  switch (ptl_code) {
    case PTL_OK: return CH3_OFFLOAD_AM_OK;
    case PTL_NO_SPACE:
    case PTL_PT_FULL:
    case PTL_LIST_TOO_LONG: return CH3_OFFLOAD_AM_NO_MEMORY;
    default: return CH3_OFFLOAD_AM_FAIL;
  }
}

}  // namespace

int Endpoint::open() {
  for (Outbox& outbox : outboxes_) {
    outbox.memory = std::make_unique_for_overwrite<unsigned char[]>(kMostOutgoing * kMostMessageBytes);
    for (OutgoingMessage& message : outbox.messages) outbox.free[outbox.free_count++] = &message;
  }
  return code_of(open_interface());
}

int Endpoint::open_interface() {
  int code = PtlInit();
  if (code != PTL_OK) return code;
  is_initialized_ = true;
  ptl_ni_limits_t limits;
  ptl_process_t self;
  ptl_uid_t user;
  code = PtlNIInit(PTL_IFACE_DEFAULT, PTL_NI_MATCHING | PTL_NI_PHYSICAL, PTL_PID_ANY, nullptr, &limits, &ni_);
  if (code != PTL_OK) return code;
  // Messages must keep their order.
  if (limits.max_waw_ordered_size < kMostMessageBytes || limits.max_msg_size < kMostMessageBytes)
    return PTL_NO_SPACE;
  code = PtlGetPhysId(ni_, &self);
  if (code == PTL_OK) code = PtlGetUid(ni_, &user);
  if (code != PTL_OK) return code;
  if (::getrandom(&address_.key, sizeof address_.key, 0) != sizeof address_.key) return PTL_FAIL;
  for (Inbox& inbox : inboxes_) {
    code = inbox.open(ni_, address_.key, user);
    if (code != PTL_OK) return code;
  }
  address_.nid = self.phys.nid;
  address_.pid = self.phys.pid;
  address_.requests_table = inboxes_[index_of(Channel::kRequests)].table();
  address_.replies_table = inboxes_[index_of(Channel::kReplies)].table();
  // Of each message: PTL_EVENT_SEND if it fails, and PTL_EVENT_ACK.
  code = PtlEQAlloc(ni_, 2 * kChannels * kMostOutgoing, &acknowledgements_);
  for (Outbox& outbox : outboxes_) {
    if (code != PTL_OK) return code;
    ptl_md_t memory{};
    memory.start = outbox.memory.get();
    memory.length = kMostOutgoing * kMostMessageBytes;
    memory.options = PTL_MD_EVENT_SEND_DISABLE;
    memory.eq_handle = acknowledgements_;
    memory.ct_handle = PTL_CT_NONE;
    code = PtlMDBind(ni_, &memory, &outbox.descriptor);
  }
  return code == PTL_OK ? regions_.open(ni_, self, user) : code;
}

int Endpoint::close() noexcept {
  if (is_in_poll_) return CH3_OFFLOAD_AM_INVALID;
  if (ni_ != PTL_INVALID_HANDLE) {
    is_closing_ = true;
    waiting_ = {};
    is_in_poll_ = true;  // Transfers end, which the program hears.
    while (take_event(0) == CH3_OFFLOAD_AM_OK) {
    }
    is_in_poll_ = false;
    ptl_sr_value_t drops;
    PtlNIStatus(ni_, PTL_SR_DROP_COUNT, &drops);  // Lets the library work.
    for (auto& [address, peer] : peers_)
      for (SendStream& stream : peer.streams)
        stream.give_up([&](OutgoingMessage& message) { give_back(message); });
    for (const Outbox& outbox : outboxes_)
      if (outbox.free_count < kMostOutgoing) return CH3_OFFLOAD_AM_AGAIN;
    if (!regions_.close()) return CH3_OFFLOAD_AM_AGAIN;
    for (Inbox& inbox : inboxes_)
      if (!inbox.close()) return CH3_OFFLOAD_AM_AGAIN;
    for (const Outbox& outbox : outboxes_)
      if (outbox.descriptor != PTL_INVALID_HANDLE) PtlMDRelease(outbox.descriptor);
    if (acknowledgements_ != PTL_EQ_NONE) PtlEQFree(acknowledgements_);
    PtlNIFini(ni_);
    ni_ = PTL_INVALID_HANDLE;
  }
  if (is_initialized_) PtlFini();
  is_initialized_ = false;
  return CH3_OFFLOAD_AM_OK;
}

int Endpoint::add_function(std::string_view name, ch3_offload_am_function_t* function, void* context) {
  const std::uint64_t number = number_of(name);
  if (name.empty()) return CH3_OFFLOAD_AM_INVALID;
  if (number < kFirstOfProgram || !functions_.try_emplace(number, Function{function, context}).second)
    return CH3_OFFLOAD_AM_IN_USE;
  return CH3_OFFLOAD_AM_OK;
}

int Endpoint::find_peer(const Address& address, Peer*& peer) {
  const auto known = peers_.find(address);
  if (known == peers_.end() && peers_.size() >= kMostPeers) return CH3_OFFLOAD_AM_NO_MEMORY;
  peer = known != peers_.end() ? &known->second : &make_stranger(address);
  hold(*peer);
  return CH3_OFFLOAD_AM_OK;
}

/// REQUIRES: no peer has this address. Throws std::bad_alloc.
Peer& Endpoint::make_stranger(const Address& address) {
  if (active_.capacity() <= peers_.size()) active_.reserve(2 * active_.capacity() + 16);
  strangers_.reserve(active_.capacity());
  Peer& made = peers_.try_emplace(address, *this, address).first->second;
  made.stranger = strangers_.size();
  strangers_.push_back(&made);
  return made;
}

/// The program may keep a pointer to it.
void Endpoint::hold(Peer& peer) noexcept {
  if (peer.stranger == SIZE_MAX) return;
  strangers_[peer.stranger] = strangers_.back();
  strangers_[peer.stranger]->stranger = peer.stranger;
  strangers_.pop_back();
  peer.stranger = SIZE_MAX;
}

void Endpoint::release(Peer& peer) noexcept {
  if (peer.stranger != SIZE_MAX) return;
  peer.stranger = strangers_.size();
  strangers_.push_back(&peer);
  has_dead_strangers_ = has_dead_strangers_ || peer.is_dead;
}

void Endpoint::check_strangers() noexcept {
  if (strangers_.size() <= kFewStrangers) return;
  for (int i = 0; i < 2; ++i) {
    Peer& peer = *strangers_[next_stranger_++ % strangers_.size()];
    if (peer.is_dead || peer.is_active) continue;
    peer.is_only_checked = true;
    static_cast<void>(add(peer, Channel::kRequests, kNothing, {}));
  }
}

/// Strangers. REQUIRES: no function of the program runs.
void Endpoint::forget_dead() noexcept {
  if (!std::exchange(has_dead_strangers_, false)) return;
  for (std::size_t i = 0; i < strangers_.size();) {
    Peer& peer = *strangers_[i];
    const bool is_in_use = peer.is_active || waiting_.peer == &peer ||
                           std::any_of(failures_.begin(), failures_.end(),
                                       [&](const Failure& one) { return one.peer == &peer; });
    if (!peer.is_dead || is_in_use) {
      has_dead_strangers_ = has_dead_strangers_ || peer.is_dead;
      ++i;
      continue;
    }
    hold(peer);
    peers_.erase(peers_.find(peer.address));
  }
}

// Sending.

bool Endpoint::has_room(const Peer& peer, Channel channel) const noexcept {
  return peer.streams[index_of(channel)].has_room() && outboxes_[index_of(channel)].free_count > 0;
}

unsigned char* Endpoint::memory_of(const OutgoingMessage& message) const noexcept {
  const Outbox& outbox = outboxes_[index_of(message.channel)];
  return outbox.memory.get() +
         static_cast<std::size_t>(&message - outbox.messages.data()) * kMostMessageBytes;
}

void Endpoint::give_back(OutgoingMessage& message) noexcept {
  Outbox& outbox = outboxes_[index_of(message.channel)];
  message.state = OutgoingMessage::State::kFree;
  outbox.free[outbox.free_count++] = &message;
}

int Endpoint::send(Peer& peer, Channel channel, std::uint64_t function,
                   std::span<const unsigned char> arguments) noexcept {
  peer.is_only_checked = false;
  return add(peer, channel, function, arguments);
}

int Endpoint::add(Peer& peer, Channel channel, std::uint64_t function,
                  std::span<const unsigned char> arguments) noexcept {
  if (is_closing_) return CH3_OFFLOAD_AM_FAIL;
  if (peer.is_dead) return CH3_OFFLOAD_AM_PEER_DEAD;
  if (!has_room(peer, channel)) return CH3_OFFLOAD_AM_AGAIN;
  Outbox& outbox = outboxes_[index_of(channel)];
  SendStream& stream = peer.streams[index_of(channel)];
  OutgoingMessage& message = *outbox.free[--outbox.free_count];
  message.peer = &peer;
  message.channel = channel;
  message.length_bytes = static_cast<std::uint32_t>(kHeaderBytes + arguments.size());
  MessageHeader header;
  header.function = function;
  header.sequence = stream.next_sequence();
  header.sender_key = address_.key;
  header.requests_table = address_.requests_table;
  header.replies_table = address_.replies_table;
  header.arguments_bytes = static_cast<std::uint32_t>(arguments.size());
  unsigned char* const memory = memory_of(message);
  write(header, std::span<unsigned char, kHeaderBytes>(memory, kHeaderBytes));
  if (!arguments.empty()) std::memcpy(memory + kHeaderBytes, arguments.data(), arguments.size());
  stream.add(message);
  if (!peer.is_active) {
    peer.is_active = true;
    active_.push_back(&peer);
  }
  post(peer, channel, monotonic_ns());
  return peer.is_dead ? CH3_OFFLOAD_AM_PEER_DEAD : CH3_OFFLOAD_AM_OK;
}

int Endpoint::reply(Incoming& message, std::uint64_t function,
                    std::span<const unsigned char> arguments) noexcept {
  if (!message.may_be_answered) return CH3_OFFLOAD_AM_INVALID;
  message.may_be_answered = false;
  return send(*message.peer, Channel::kReplies, function, arguments);
}

int Endpoint::check(Peer& peer) noexcept {
  if (peer.is_dead) return CH3_OFFLOAD_AM_PEER_DEAD;
  peer.is_only_checked = false;
  if (peer.is_active) return CH3_OFFLOAD_AM_OK;
  return send(peer, Channel::kRequests, kNothing, {});
}

void Endpoint::post(Peer& peer, Channel channel, std::uint64_t now_ns) noexcept {
  SendStream& stream = peer.streams[index_of(channel)];
  std::uint64_t due_ns = kNever;
  if (peer.is_dead || !stream.is_due(now_ns, due_ns)) return;
  if (!stream.post_all(now_ns, [&](OutgoingMessage& message) { return post(message); })) bury(peer);
}

SendStream::Posted Endpoint::post(OutgoingMessage& message) noexcept {
  const Address& to = message.peer->address;
  const std::size_t offset =
      static_cast<std::size_t>(memory_of(message) - outboxes_[index_of(message.channel)].memory.get());
  ptl_process_t process;
  process.phys = {to.nid, to.pid};
  const ptl_pt_index_t table = message.channel == Channel::kRequests ? to.requests_table : to.replies_table;
  switch (PtlPut(outboxes_[index_of(message.channel)].descriptor, offset, message.length_bytes, PTL_ACK_REQ,
                 process, table, to.key, 0, &message, 0)) {
    case PTL_OK: return SendStream::Posted::kOk;
    case PTL_NO_SPACE: return SendStream::Posted::kAgain;
    default: return SendStream::Posted::kFailed;
  }
}

/// Nothing more goes to the peer. The program is told if it has sent to it. What is under way ends by itself.
void Endpoint::bury(Peer& peer) noexcept {
  if (!peer.is_dead) {
    peer.is_dead = true;
    has_dead_strangers_ = has_dead_strangers_ || peer.stranger != SIZE_MAX;
    if (!peer.is_only_checked) note({&peer, CH3_OFFLOAD_AM_PEER_DEAD, 0});
  }
  for (SendStream& stream : peer.streams)
    stream.give_up([&](OutgoingMessage& message) { give_back(message); });
}

void Endpoint::note(const Failure& failure) noexcept {
  try {
    failures_.push_back(failure);
  } catch (const std::bad_alloc&) {  // The death of a peer is also what the next send returns.
  }
}

// What happens.

int Endpoint::poll(int timeout_ms) noexcept {
  if (is_in_poll_) return CH3_OFFLOAD_AM_INVALID;
  if (is_closing_) return CH3_OFFLOAD_AM_FAIL;
  is_in_poll_ = true;
  const int code =
      wait(timeout_ms < 0 ? kNever : monotonic_ns() + static_cast<std::uint64_t>(timeout_ms) * kNsPerMs);
  is_in_poll_ = false;
  return code;
}

bool Endpoint::is_over() const noexcept {
  const auto is_only_checked = [](const Peer* peer) { return peer->is_only_checked; };
  return std::all_of(active_.begin(), active_.end(), is_only_checked) && !regions_.has_transfers() &&
         failures_.empty();
}

int Endpoint::flush(int timeout_ms) noexcept {
  const std::uint64_t begin_ns = monotonic_ns();
  for (;;) {
    const std::uint64_t passed_ms = elapsed_ns(monotonic_ns(), begin_ns) / kNsPerMs;
    const bool is_late = timeout_ms >= 0 && passed_ms >= static_cast<std::uint64_t>(timeout_ms);
    const int left_ms = timeout_ms < 0 ? -1 : is_late ? 0 : timeout_ms - static_cast<int>(passed_ms);
    const int code = poll(is_over() ? 0 : left_ms);
    if (code != CH3_OFFLOAD_AM_OK && code != CH3_OFFLOAD_AM_AGAIN) return code;
    if (is_over()) return CH3_OFFLOAD_AM_OK;
    if (is_late) return CH3_OFFLOAD_AM_AGAIN;
  }
}

/// Waits until something has happened.
int Endpoint::wait(std::uint64_t deadline_ns) noexcept {
  for (;;) {
    std::uint64_t due_ns = kNever;
    if (turn(due_ns) > 0) return CH3_OFFLOAD_AM_OK;
    const std::uint64_t now_ns = monotonic_ns();
    if (now_ns >= deadline_ns) return CH3_OFFLOAD_AM_AGAIN;
    const std::uint64_t until_ns = std::min(due_ns, deadline_ns);
    const std::uint64_t left_ms = until_ns <= now_ns ? 0 : (until_ns - now_ns + kNsPerMs - 1) / kNsPerMs;
    const int code = take_event(until_ns == kNever ? PTL_TIME_FOREVER : static_cast<ptl_time_t>(left_ms));
    if (code != CH3_OFFLOAD_AM_AGAIN) return code;
  }
}

/// One turn. Returns how much has happened. `due_ns`: made no later than when the next one has something to
/// do.
std::size_t Endpoint::turn(std::uint64_t& due_ns) noexcept {
  std::size_t done = handle_waiting() ? 1 : 0;
  for (std::size_t i = 0; i < kMostEvents && take_event(0) == CH3_OFFLOAD_AM_OK; ++i) ++done;
  done += regions_.tell_finished();
  for (Inbox& inbox : inboxes_) inbox.link_all();
  const std::uint64_t now_ns = monotonic_ns();
  for (std::size_t i = 0; i < active_.size();) {
    Peer& peer = *active_[i];
    for (const Channel channel : {Channel::kRequests, Channel::kReplies}) {
      post(peer, channel, now_ns);
      static_cast<void>(peer.streams[index_of(channel)].is_due(now_ns, due_ns));
    }
    const bool is_idle = std::all_of(peer.streams.begin(), peer.streams.end(),
                                     [](const SendStream& stream) { return stream.is_empty(); });
    if (is_idle) {
      peer.is_active = false;
      active_[i] = active_.back();
      active_.pop_back();
    } else {
      ++i;
    }
  }
  done += tell_failures();
  forget_dead();
  return done;
}

/// Takes one event and does what it wants. CH3_OFFLOAD_AM_AGAIN: the time is over.
int Endpoint::take_event(ptl_time_t timeout_ms) noexcept {
  const std::array<ptl_handle_eq_t, 4> queues{acknowledgements_,
                                              inboxes_[index_of(Channel::kReplies)].queue(), regions_.queue(),
                                              inboxes_[index_of(Channel::kRequests)].queue()};
  // No request is taken while one waits.
  const unsigned int number = waiting_.peer == nullptr ? 4 : 3;
  ptl_event_t event;
  unsigned int which = 0;
  const int code = PtlEQPoll(queues.data(), number, timeout_ms, &event, &which);
  if (code == PTL_EQ_EMPTY) return CH3_OFFLOAD_AM_AGAIN;
  if (code != PTL_OK && code != PTL_EQ_DROPPED) return CH3_OFFLOAD_AM_FAIL;
  switch (which) {
    case 0: acknowledged(event); break;
    case 1: arrived(Channel::kReplies, event); break;
    case 2: regions_.take(event); break;
    default: arrived(Channel::kRequests, event); break;
  }
  return CH3_OFFLOAD_AM_OK;
}

void Endpoint::acknowledged(const ptl_event_t& event) noexcept {
  if (event.type != PTL_EVENT_ACK) return;
  OutgoingMessage& message = *static_cast<OutgoingMessage*>(event.user_ptr);
  Peer& peer = *message.peer;
  const bool is_taken = event.ni_fail_type == PTL_NI_OK && event.mlength == message.length_bytes;
  const bool is_refused = event.ni_fail_type == PTL_NI_OK && event.mlength == Inbox::kNoRoom;
  const bool is_dead = peer.is_dead || (!is_taken && !is_refused);
  peer.streams[index_of(message.channel)].ended(message, is_taken || is_dead, monotonic_ns(),
                                                [&](OutgoingMessage& one) { give_back(one); });
  if (is_dead) bury(peer);
}

/// HOSTILE BYTES: whoever has the user's key, or is of this user on this node, can send anything.
void Endpoint::arrived(Channel channel, const ptl_event_t& event) noexcept {
  const std::span<const unsigned char> message = inboxes_[index_of(channel)].take(event);
  if (is_closing_) return;
  const std::optional<MessageHeader> header = read_header(message);
  if (!header) return;
  Arrival arrival;
  arrival.header = *header;
  arrival.arguments = message.subspan(kHeaderBytes);
  arrival.peer = sender_of(*header, event.initiator);
  // Another one than the next: its sender sends it again, behind one that was refused.
  if (arrival.peer == nullptr || arrival.peer->expected[index_of(channel)] != header->sequence) return;
  ++arrival.peer->expected[index_of(channel)];
  if (channel == Channel::kRequests)
    waiting_ = arrival;
  else
    handle(channel, arrival);
  static_cast<void>(handle_waiting());
}

/// Null: there is no memory for another peer.
Peer* Endpoint::sender_of(const MessageHeader& header, const ptl_process_t& process) noexcept {
  Address address;
  address.nid = process.phys.nid;
  address.pid = process.phys.pid;
  address.requests_table = header.requests_table;
  address.replies_table = header.replies_table;
  address.key = header.sender_key;
  try {
    const auto known = peers_.find(address);
    if (known != peers_.end()) return &known->second;
    if (peers_.size() < kMostPeers) {
      Peer& newcomer = make_stranger(address);
      check_strangers();
      return &newcomer;
    }
    check_strangers();
  } catch (const std::bad_alloc&) {
  }
  note({nullptr, CH3_OFFLOAD_AM_NO_MEMORY, header.function});
  return nullptr;
}

/// Handles the request that waits. Returns false if there is none, or its answer still has no room.
bool Endpoint::handle_waiting() noexcept {
  if (waiting_.peer == nullptr) return false;
  if (!waiting_.peer->is_dead && !has_room(*waiting_.peer, Channel::kReplies)) return false;
  handle(Channel::kRequests, std::exchange(waiting_, {}));
  return true;
}

void Endpoint::handle(Channel channel, const Arrival& arrival) noexcept {
  const std::uint64_t number = arrival.header.function;
  const bool is_request = channel == Channel::kRequests;
  if (number == kNothing) return;
  if (number == kUnknownFunction) {
    if (!is_request && arrival.arguments.size() == sizeof(std::uint64_t))
      note({arrival.peer, CH3_OFFLOAD_AM_UNKNOWN, load_little<std::uint64_t>(arrival.arguments.data())});
    return;
  }
  Incoming message{arrival.peer, is_request};
  const auto function = functions_.find(number);
  if (function != functions_.end()) {
    ch3_offload_am_reader_t reader{arrival.arguments.data(),
                                   static_cast<std::uint32_t>(arrival.arguments.size()), 0};
    function->second.call(function->second.context, reinterpret_cast<ch3_offload_am_message_t*>(&message),
                          &reader);
    return;
  }
  if (!is_request) {
    note({arrival.peer, CH3_OFFLOAD_AM_UNKNOWN, number});
    return;
  }
  std::array<unsigned char, sizeof number> argument;
  store_little(argument.data(), number);
  static_cast<void>(reply(message, kUnknownFunction, argument));
}

std::size_t Endpoint::tell_failures() noexcept {
  const std::size_t number = failures_.size();
  for (std::size_t i = 0; i < number; ++i) {
    const Failure failure = failures_.front();
    failures_.pop_front();
    if (failed_ != nullptr)
      failed_(failed_context_, reinterpret_cast<ch3_offload_am_peer_t*>(failure.peer), failure.code,
              failure.function);
  }
  return number;
}

}  // namespace ch3_offload::active_messages

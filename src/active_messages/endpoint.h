// An endpoint of active messages: its functions, its peers, and what happens in a poll.
//
// ROOM. An endpoint has memory for kMostOutgoing messages of each channel on their way out, and for
// Inbox::kEntries of each that have arrived. A send that finds none says so. A receiver that has none refuses
// the message, and the stream sends it again (send_stream.h).
//
// ANSWERS. A request is handled when its answer has room: until then it waits, and all requests behind it.
// Replies have memory of their own at both ends, and are not answered. So they can always be handled, and two
// endpoints that flood each other with requests do not wait for each other for ever.
//
// STRANGERS. A peer that the program has not asked for is a stranger: it has only sent messages. Nothing says
// when it goes, so each newcomer makes the endpoint check two of them, and those that are dead are forgotten.
// So what is kept of peers that were does not grow with their number.
//
// Threads: one. Allocation: open(), add_function(), find_peer(); a message from a new peer.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "active_messages/inbox.h"
#include "active_messages/message.h"
#include "active_messages/regions.h"
#include "active_messages/send_stream.h"
#include "portals/portals4.h"

namespace ch3_offload::active_messages {

class Endpoint;

/// Another endpoint, or this one.
struct Peer {
  Peer(Endpoint& its_endpoint, const Address& its_address) noexcept
      : endpoint(its_endpoint), address(its_address) {}

  Endpoint& endpoint;
  const Address address;
  std::array<SendStream, kChannels> streams;
  std::array<std::uint64_t, kChannels> expected{};  ///< Number of the next message from it.
  bool is_dead = false;
  bool is_active = false;           ///< In Endpoint::active_: a stream has messages.
  bool is_only_checked = false;     ///< These are the library's own.
  std::size_t stranger = SIZE_MAX;  ///< In Endpoint::strangers_. SIZE_MAX: the program has asked for it.
};

/// A message whose handler runs.
struct Incoming {
  Peer* peer = nullptr;
  bool may_be_answered = false;
};

class Endpoint {
 public:
  static constexpr std::size_t kMostOutgoing = 256;
  static constexpr std::size_t kMostPeers = 65'536;

  Endpoint(ch3_offload_am_failed_t* failed, void* context) noexcept
      : failed_(failed), failed_context_(context) {}
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // The functions of ch3_offload_am.h, with its codes. They may throw std::bad_alloc, where nothing else is
  // said.

  /// After an error, close() must follow until it returns kOk.
  int open();
  int close() noexcept;
  const Address& address() const noexcept { return address_; }
  int add_function(std::string_view name, ch3_offload_am_function_t* function, void* context);
  /// The program asks.
  int find_peer(const Address& address, Peer*& peer);
  void hold(Peer& peer) noexcept;
  void release(Peer& peer) noexcept;
  int send(Peer& peer, Channel channel, std::uint64_t function,
           std::span<const unsigned char> arguments) noexcept;
  int reply(Incoming& message, std::uint64_t function, std::span<const unsigned char> arguments) noexcept;
  int check(Peer& peer) noexcept;
  int poll(int timeout_ms) noexcept;
  int flush(int timeout_ms) noexcept;
  Regions& regions() noexcept { return regions_; }
  /// Whether a function of the program runs.
  bool is_in_poll() const noexcept { return is_in_poll_; }

 private:
  struct Function {
    ch3_offload_am_function_t* call;
    void* context;
  };
  struct Failure {
    Peer* peer;
    int code;
    std::uint64_t function;
  };
  /// Messages of one channel on their way out.
  struct Outbox {
    std::unique_ptr<unsigned char[]> memory;
    std::array<OutgoingMessage, kMostOutgoing> messages;
    std::array<OutgoingMessage*, kMostOutgoing> free;
    std::size_t free_count = 0;
    ptl_handle_md_t descriptor = PTL_INVALID_HANDLE;
  };
  /// A message that has arrived.
  struct Arrival {
    Peer* peer = nullptr;  ///< Null: there is none.
    MessageHeader header;
    std::span<const unsigned char> arguments;
  };

  static constexpr std::size_t kMostEvents = 256;   ///< Of a turn.
  static constexpr std::size_t kFewStrangers = 16;  ///< So many are not checked.

  int open_interface();
  bool is_over() const noexcept;

  bool has_room(const Peer& peer, Channel channel) const noexcept;
  unsigned char* memory_of(const OutgoingMessage& message) const noexcept;
  void give_back(OutgoingMessage& message) noexcept;
  void post(Peer& peer, Channel channel, std::uint64_t now_ns) noexcept;
  SendStream::Posted post(OutgoingMessage& message) noexcept;
  void bury(Peer& peer) noexcept;
  int add(Peer& peer, Channel channel, std::uint64_t function,
          std::span<const unsigned char> arguments) noexcept;
  Peer& make_stranger(const Address& address);
  void check_strangers() noexcept;
  void forget_dead() noexcept;
  void note(const Failure& failure) noexcept;

  int wait(std::uint64_t deadline_ns) noexcept;
  std::size_t turn(std::uint64_t& due_ns) noexcept;
  int take_event(ptl_time_t timeout_ms) noexcept;
  void acknowledged(const ptl_event_t& event) noexcept;
  void arrived(Channel channel, const ptl_event_t& event) noexcept;
  Peer* sender_of(const MessageHeader& header, const ptl_process_t& process) noexcept;
  bool handle_waiting() noexcept;
  void handle(Channel channel, const Arrival& arrival) noexcept;
  std::size_t tell_failures() noexcept;

  ch3_offload_am_failed_t* const failed_;
  void* const failed_context_;
  bool is_initialized_ = false;  ///< PtlInit() has succeeded.
  ptl_handle_ni_t ni_ = PTL_INVALID_HANDLE;
  Address address_;
  std::array<Inbox, kChannels> inboxes_;
  std::array<Outbox, kChannels> outboxes_;
  ptl_handle_eq_t acknowledgements_ = PTL_EQ_NONE;
  Regions regions_;
  std::map<std::uint64_t, Function> functions_;
  std::map<Address, Peer> peers_;  ///< The dead, too, if the program may have pointers to them.
  std::vector<Peer*> active_;      ///< Has room for all of them.
  std::vector<Peer*> strangers_;   ///< Has room for all of them.
  std::size_t next_stranger_ = 0;  ///< To be checked, modulo their number.
  bool has_dead_strangers_ = false;
  Arrival waiting_;               ///< A request whose answer has no room.
  std::deque<Failure> failures_;  ///< That the program was not told of.
  bool is_in_poll_ = false;
  bool is_closing_ = false;
};

}  // namespace ch3_offload::active_messages

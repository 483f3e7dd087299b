// Moves items over links: messages and parts of writes to the peers, and what the peers send to the Sink.
//
// It posts to queue pairs, takes completions, and keeps the credit of both directions. It makes no link: it
// asks its client for one where items wait, and says where one failed.
//
//   transport.cc     what is sent
//   completions.cc   what arrived, and what the peers' devices have
//
// Threads: as rdma/provider.h says. Over a link that is up nothing allocates, but for slabs of slots added
// now and then.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rdma/log.h"
#include "rdma/provider.h"
#include "rdma/verbs/devices/rail.h"
#include "rdma/verbs/devices/registrations.h"
#include "rdma/verbs/marked_list.h"
#include "rdma/verbs/transport/message_buffers.h"
#include "rdma/verbs/verbs_endpoint.h"

namespace ch3_offload {

class Transport {
 public:
  /// What links are asked, and told. Calls come from most functions of the transport.
  class Client {
   public:
    /// Items wait, and there is no link.
    virtual void want_link(VerbsLane& lane) noexcept = 0;
    virtual void lose_link(VerbsLane& lane, const char* why) noexcept = 0;
    /// An item came over a link in kBound.
    virtual void on_first_item(VerbsLane& lane) noexcept = 0;
    /// The peer parks: it sends nothing more on this link.
    virtual void on_park(VerbsLane& lane) noexcept = 0;
    /// The peer's device has all that was sent.
    virtual void on_all_retired(VerbsLane& lane) noexcept = 0;
    /// The peer runs out of credit.
    virtual void on_credit_wanted(VerbsLane& lane) noexcept = 0;
    /// kProtocol: the peer does not follow the protocol. kPeerFailed: it said goodbye, or refused what was
    /// sent.
    virtual void on_peer_over(VerbsEndpoint& peer, Status reason) noexcept = 0;
    virtual void on_rail_failed(Rail& rail, const char* why) noexcept = 0;

   protected:
    ~Client() = default;
  };

  struct Figures {
    std::uint64_t messages_sent = 0;
    std::uint64_t writes_posted = 0;  ///< Parts.
    std::uint64_t credit_messages = 0;
    std::uint64_t probes = 0;  ///< Writes of nothing that asked whether a silent peer lives.
  };

  /// `rails` and `registrations` outlive this. `slots`: registered with each rail.
  Transport(std::span<const std::unique_ptr<Rail>> rails, const Registrations& registrations, SlotPool slots,
            Log log, Client& client);

  /// Prepares for so many lanes. Throws std::bad_alloc.
  void make_room(std::size_t lanes);

  // Sending. As Provider has it; `striped`: over both lanes.
  Status reserve(VerbsEndpoint& peer, std::size_t length_bytes, std::span<std::byte>& slot) noexcept;
  void commit(VerbsEndpoint& peer, std::size_t length_bytes) noexcept;
  Status may_write(VerbsEndpoint& peer) noexcept;
  /// REQUIRES: may_write() has just returned kOk.
  void write(VerbsEndpoint& peer, const std::byte* source, std::size_t length_bytes,
             const MemoryRegion& region, RemoteMemory destination, Immediate immediate, WorkId work,
             bool striped) noexcept;
  /// Sends a message without payload. Returns false if there is no slot for it.
  /// REQUIRES: the link is up and takes it.
  bool push_notice(VerbsLane& lane, std::uint8_t kind) noexcept;
  /// Sees to it that all that was posted will be retired.
  void flush_tail(VerbsLane& lane) noexcept;
  /// Finds out whether the peer lives, by a write of nothing: without an error its device is there.
  /// REQUIRES: the link is up, and all is retired.
  void probe(VerbsLane& lane) noexcept;

  // Links. REQUIRES: a poll.
  /// The link is up: sends what waits.
  void start(VerbsLane& lane) noexcept;
  /// The peer has all items below `received` and takes those below `limit`: what follows is to be sent again.
  /// Returns how many items that are. REQUIRES: link.may_resume_at(received).
  std::uint64_t resume(VerbsLane& lane, std::uint64_t received, std::uint64_t limit) noexcept;
  /// The link has ended. What it held waits for the next one.
  void stop(VerbsLane& lane) noexcept;
  /// Makes items of what is left of a write, as far as there is room, and posts what may be posted.
  void push_parts(VerbsEndpoint& peer) noexcept;
  /// Gives up what was to be sent to a peer, and tells the Sink of its end. REQUIRES: it has no links; poll.
  void end_peer(VerbsEndpoint& peer) noexcept;

  // A poll.
  void begin_poll(Sink& sink) noexcept;
  /// Takes at most about `budget` completions of each rail. Returns whether there are no more.
  bool take_completions(std::size_t budget) noexcept;
  /// Returns how many events were found.
  std::size_t end_poll() noexcept;
  const Sink& sink() const noexcept { return *sink_; }
  std::size_t found() const noexcept { return found_; }
  /// Whether the Sink still reads the latest message (Delivery::kHeld).
  bool holds_message() const noexcept { return held_rail_ != nullptr; }
  /// Returns how many peers that were refused room have room now, and forgets them. To be called only before
  /// and during a sleep: otherwise a caller that was refused could sleep although room has come.
  std::size_t unblock() noexcept;

  const MessageBuffers& buffers() const noexcept { return buffers_; }
  SlotPool& slots() noexcept { return buffers_.slots(); }
  const Figures& figures() const noexcept { return figures_; }

 private:
  /// A write whose source is still read.
  struct Write {
    WorkId work{};
    VerbsEndpoint* peer = nullptr;
    const std::byte* source = nullptr;
    std::size_t length_bytes = 0;
    std::size_t region = 0;  ///< Of Registrations.
    RemoteMemory destination{};
    std::uint64_t part_bytes = 0;  ///< Of each part but the last.
    Immediate immediate{};
    bool striped = false;
    std::uint32_t parts = 0;
    std::uint32_t parts_pushed = 0;
    std::uint32_t parts_retired = 0;
  };

  // transport.cc
  Status no_room(VerbsEndpoint& peer) noexcept;
  bool has_room(const VerbsEndpoint& peer) const noexcept;
  void give_back_reserved(VerbsEndpoint& peer) noexcept;
  void push_message(VerbsLane& lane, Item item, std::uint8_t kind, std::size_t payload_bytes) noexcept;
  VerbsLane* lane_for_part(VerbsEndpoint& peer, const Write& write) const noexcept;
  void pump(VerbsLane& lane) noexcept;
  int post(VerbsLane& lane) noexcept;
  bool post_empty_write(VerbsLane& lane) noexcept;
  void send_due_credit() noexcept;

  // completions.cc
  bool take_completions(Rail& rail, std::size_t budget) noexcept;
  bool handle_completions(Rail& rail) noexcept;
  void on_receive(Rail& rail, const ibv_wc& completion) noexcept;
  bool deliver(VerbsLane& lane, const ibv_wc& completion, const std::byte* slot) noexcept;
  void on_send_completion(Rail& rail, const ibv_wc& completion) noexcept;
  void retire(VerbsLane& lane, std::uint64_t up_to) noexcept;

  std::span<const std::unique_ptr<Rail>> rails_;
  const Registrations& registrations_;
  const Log log_;
  Client& client_;
  MessageBuffers buffers_;
  std::uint64_t part_bytes_;  ///< Longest part of a write.
  std::vector<Write> writes_;
  std::vector<std::uint32_t> free_writes_;
  MarkedList<VerbsLane, &VerbsLane::credit_due> credit_due_;
  MarkedList<VerbsLane, &VerbsLane::lacks_slot> lacking_;
  MarkedList<VerbsEndpoint, &VerbsEndpoint::blocked> blocked_;
  Rail* held_rail_ = nullptr;  ///< The Sink still reads a message in held_slot_ of this rail.
  std::uint32_t held_slot_ = 0;
  Sink* sink_ = nullptr;   ///< During a poll.
  std::size_t found_ = 0;  ///< By this poll.
  std::uint64_t polls_ = 0;
  Figures figures_;
};

}  // namespace ch3_offload

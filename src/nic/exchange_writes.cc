// A process's registered memory, and its writes to that of others. The memory is mapped in this process: what
// a client has shared (nic/client_shares.h). What none has shared is written by its receiver (OfferedCopies).

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "nic/exchange.h"
#include "rdma/ch3_offload_copy.h"

namespace ch3_offload {
namespace {

/// A part of a write over the network, and how many of a write are under way. One connection carries what all
/// processes of two nodes send each other, in order.
constexpr std::size_t kPartBytes = std::size_t{512} << 10;
constexpr std::uint32_t kMostParts = 2;

/// Whether it is for the client to do something.
constexpr bool is_under_way(OfferedCopy::State state) noexcept {
  return state == OfferedCopy::State::kWaiting || state == OfferedCopy::State::kOpen ||
         state == OfferedCopy::State::kTaken;
}

/// A process that has failed to make so many copies in a row is asked to make no more of that peer's.
constexpr std::uint8_t kMostFailedCopies = 4;

constexpr std::uint32_t number_of(RemoteKey key) noexcept {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(key));
}

}  // namespace

// Memory of the node.

Status ExchangePort::NodeMemory::register_memory(void* address, std::size_t length_bytes, Access access,
                                                 MemoryRegion& region) noexcept {
  region = {static_cast<std::byte*>(address), length_bytes, RemoteKey{}, 0};
  if (access == Access::kRead || length_bytes == 0) return Status::kOk;
  if (free_region_ == 0) {
    try {
      regions_.emplace_back();
    } catch (const std::bad_alloc&) {
      return Status::kNoMemory;
    }
    free_region_ = static_cast<std::uint32_t>(regions_.size());
  }
  const std::uint32_t number = free_region_;
  Region& entry = regions_[number - 1];
  free_region_ = entry.next_free;
  entry.address = region.address;
  entry.length_bytes = length_bytes;
  region.remote_key = RemoteKey{std::uint64_t{entry.generation} << 32 | number};
  return Status::kOk;
}

Status ExchangePort::NodeMemory::register_fetched(std::byte* payload, std::size_t length_bytes, Access access,
                                                  MemoryRegion& region) noexcept {
  const auto place = reinterpret_cast<const ClientMemory::Part*>(payload)->place();
  if (!place) return Status::kUnsupported;
  OfferedCopies& offers = place->memory->offers();
  const bool is_to = access == Access::kWrite;
  if (is_to && (!offers.can_offer() || length_bytes < offers.least_bytes())) return Status::kUnsupported;
  const Status status = register_memory(payload, length_bytes, access, region);
  region.local_key = kFetched;
  if (!is_to || status != Status::kOk) return status;
  Region& entry = regions_[number_of(region.remote_key) - 1];
  entry.offers = &offers;
  entry.copy.receive = place->operation;
  return Status::kOk;
}

void ExchangePort::NodeMemory::deregister_memory(MemoryRegion& region) noexcept {
  const std::uint32_t number = number_of(region.remote_key);
  if (number == 0) return;
  Region& entry = regions_[number - 1];
  if (OfferedCopies* const offers = std::exchange(entry.offers, nullptr)) offers->withdraw(entry.copy);
  entry.address = nullptr;
  entry.length_bytes = 0;
  ++entry.generation;
  entry.next_free = std::exchange(free_region_, number);
}

ExchangePort::NodeMemory::Region* ExchangePort::NodeMemory::find(RemoteMemory memory,
                                                                 std::size_t length_bytes) noexcept {
  const auto key = static_cast<std::uint64_t>(memory.remote_key);
  const std::uint32_t number = number_of(memory.remote_key);
  if (number == 0 || number > regions_.size()) return nullptr;
  Region& region = regions_[number - 1];
  const std::uint64_t offset = memory.address - reinterpret_cast<std::uint64_t>(region.address);
  if (region.generation != key >> 32 || offset > region.length_bytes ||
      length_bytes > region.length_bytes - offset)
    return nullptr;
  return &region;
}

// Memory that other nodes write to, or that is written to them.

Status ExchangePort::register_memory(void* address, std::size_t length_bytes, Access access,
                                     MemoryRegion& region) noexcept {
  if (exchange_.network_ == nullptr || (access == Access::kWrite && number_ > Exchange::kMostNumbers))
    return Status::kUnsupported;
  const Status status = exchange_.network_->register_memory(address, length_bytes, access, region);
  if (status != Status::kOk) return status;
  try {
    regions_.emplace(std::pair(region.remote_key, region.address), region);
    return Status::kOk;
  } catch (const std::bad_alloc&) {
    exchange_.network_->deregister_memory(region);
    return Status::kNoMemory;
  }
}

void ExchangePort::deregister_memory(MemoryRegion& region) noexcept {
  regions_.erase(std::pair(region.remote_key, region.address));
  exchange_.network_->deregister_memory(region);
}

WriteTerms ExchangePort::write_terms(Endpoint& endpoint) noexcept {
  // One copy, where a slot takes two.
  if (of(endpoint).node == nullptr) return {&node_memory_, 1, nullptr};
  return {nullptr, exchange_.network_->capabilities().write_threshold_bytes, nullptr};
}

LandingNumbers ExchangePort::landing_numbers() const noexcept {
  constexpr std::uint32_t kMask = (1U << Exchange::kLandingBits) - 1;
  return {std::min(number_, Exchange::kMostNumbers) << Exchange::kLandingBits, kMask};
}

// Writes within the node.

/// The port that a write to that peer of the node goes to. Null: it has gone, or wants no more of this one.
ExchangePort* ExchangePort::writable_peer(const ExchangeEndpoint& peer) const noexcept {
  ExchangePort* const there = peer.ends ? nullptr : exchange_.port(peer.id);
  return there == nullptr || there->find(rank_)->ends ? nullptr : there;
}

/// Where it lands. Null: nowhere any more.
ExchangePort::NodeMemory::Region* ExchangePort::find(const Write& write) const noexcept {
  ExchangePort* const there = writable_peer(*write.peer);
  return there == nullptr ? nullptr : there->node_memory_.find(write.destination, write.length_bytes);
}

Status ExchangePort::write(Endpoint& endpoint, const std::byte* source, std::size_t length_bytes,
                           const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
                           WorkId work) noexcept {
  ExchangeEndpoint& peer = of(endpoint);
  if (peer.ends) return Status::kPeerFailed;
  if (peer.node != nullptr)
    return exchange_.write(*this, peer, {source, length_bytes}, region, destination, immediate, work);
  if (write_count_ == writes_.size()) return Status::kAgain;
  Write& write = writes_[(first_write_ + write_count_) % writes_.size()];
  write = {&peer, source, nullptr, length_bytes, 0, destination, immediate, work};
  if (NodeMemory::Region* const to = find(write)) {
    const bool is_fetched = region.local_key == NodeMemory::kFetched;
    if (is_fetched && offered_writes_ >= kMostOffered) return Status::kAgain;
    // What one of the two shares goes through a slot, where only one copy is the kernel's.
    if (is_fetched != (to->offers != nullptr) || (is_fetched && !offer(write, *to)))
      return Status::kUnsupported;
  }
  ++write_count_;
  return Status::kOk;
}

/// Asks the receiver to copy it. False: it cannot.
bool ExchangePort::offer(Write& write, NodeMemory::Region& to) noexcept {
  const auto from = reinterpret_cast<const ClientMemory::Part*>(write.source)->place();
  // For a page of the sender, the receiver would wait in the midst of a call.
  if (!from || write.peer->failed_copies >= kMostFailedCopies || to.copy.state != OfferedCopy::State::kNone ||
      !from->memory->is_present(from->address, write.length_bytes))
    return false;
  ++offered_writes_;
  write.client = from->memory;
  to.copy.process = from->memory->pid();
  to.copy.address = from->address;
  to.copy.length_bytes = write.length_bytes;
  to.offers->offer(to.copy);
  return true;
}

/// What has become of one that was offered. kAgain: nothing yet.
Status ExchangePort::look_at_copy(const Write& write, NodeMemory::Region& to) noexcept {
  const OfferedCopy::State state = to.offers->look(to.copy);
  if (is_under_way(state)) return Status::kAgain;
  if (state == OfferedCopy::State::kDone) {
    write.peer->failed_copies = 0;
    // Of whom was it, if the client has ended?
    return write.client->has_ended() ? Status::kPeerFailed : Status::kOk;
  }
  if (state == OfferedCopy::State::kFailed) ++write.peer->failed_copies;
  return Status::kUnsupported;
}

/// Whether move_writes() would find something to do. What becomes of an offer that is under way, the server
/// of its receiver notices.
bool ExchangePort::can_go_on_writing() const noexcept {
  for (std::size_t i = 0; i < write_count_; ++i) {
    const Write& write = writes_[(first_write_ + i) % writes_.size()];
    const NodeMemory::Region* const to = write.client == nullptr ? nullptr : find(write);
    if (to == nullptr || !is_under_way(to->copy.state)) return true;
  }
  return false;
}

/// Puts the first write behind the others: they take turns.
void ExchangePort::rotate_writes() noexcept {
  writes_[(first_write_ + write_count_) % writes_.size()] = writes_[first_write_];
  first_write_ = (first_write_ + 1) % writes_.size();
}

/// Takes the first write out and tells its end.
void ExchangePort::finish_write(Sink& sink, Status status) noexcept {
  const Write done = writes_[first_write_];
  if (done.client != nullptr) --offered_writes_;
  first_write_ = (first_write_ + 1) % writes_.size();
  --write_count_;
  sink.on_write_done(done.peer->id, done.work, status);
}

/// Moves as much as the process's class may in a turn, so that a long write delays no other process for
/// longer. Returns how many times something moved.
std::size_t ExchangePort::move_writes(Sink& sink) noexcept {
  std::size_t moved = 0;
  auto left_bytes = static_cast<std::size_t>(quantum_bytes_);
  for (std::size_t left = write_count_; left > 0 && left_bytes > 0 && !is_silent_; --left) {
    Write& write = writes_[first_write_];
    NodeMemory::Region* const to = find(write);
    Status status = to == nullptr ? Status::kPeerFailed : Status::kOk;
    if (to != nullptr && write.client != nullptr) {
      status = look_at_copy(write, *to);
    } else if (to != nullptr) {
      const std::size_t part = std::min(write.length_bytes - write.written_bytes, left_bytes);
      auto* const there = reinterpret_cast<std::byte*>(write.destination.address) + write.written_bytes;
      if (part > 0) ch3_offload_copy(there, write.source + write.written_bytes, part);
      write.written_bytes += part;
      left_bytes -= part;
      ++moved;
      if (write.written_bytes < write.length_bytes) {
        rotate_writes();
        break;
      }
    }
    if (status == Status::kAgain) {
      rotate_writes();
      continue;
    }
    if (status == Status::kOk && !announce(write)) break;  // The next time.
    ++moved;
    finish_write(sink, status);
  }
  return moved;
}

/// Tells the peer that all of it is there. False: there is no memory.
bool ExchangePort::announce(const Write& write) noexcept {
  ExchangeItem* const news = exchange_.make_item(0);
  if (news == nullptr) return false;
  ExchangePort* const there = writable_peer(*write.peer);
  news->from = there->find(rank_);
  news->kind = ExchangeItem::Kind::kWritten;
  news->length_bytes = write.length_bytes;
  news->immediate = write.immediate;
  there->put(*news);
  return true;
}

/// Ends all writes to a peer that is down.
void ExchangePort::end_writes(const ExchangeEndpoint& peer, Sink& sink) noexcept {
  for (std::size_t left = write_count_; left > 0; --left) {
    if (writes_[first_write_].peer == &peer) {
      finish_write(sink, Status::kPeerFailed);
    } else {
      rotate_writes();
    }
  }
}

// Writes over the network.

/// Null: there is no memory.
ExchangeWork* Exchange::take_work() noexcept {
  if (free_works_ != nullptr) return std::exchange(free_works_, free_works_->next_free);
  try {
    ExchangeWork& made = works_.emplace_back();
    made.index = static_cast<std::uint32_t>(works_.size() - 1);
    return &made;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Exchange::free_work(ExchangeWork& work) noexcept {
  const std::uint32_t index = work.index;
  work = {};
  work.index = index;
  work.next_free = std::exchange(free_works_, &work);
}

Status Exchange::write(ExchangePort& port, ExchangeEndpoint& peer, std::span<const std::byte> source,
                       const MemoryRegion& region, RemoteMemory destination, Immediate immediate,
                       WorkId id) noexcept {
  ExchangeNode& node = *peer.node;
  if (node.is_down) return Status::kPeerFailed;
  if (port.is_silent_ || port.network_writes_ >= ExchangePort::kMostWrites) return Status::kAgain;
  ExchangeWork* const work = take_work();
  if (work == nullptr) return Status::kAgain;
  work->kind = ExchangeItem::Kind::kWrote;
  work->from = &peer;
  work->node = &node;
  work->length_bytes = source.size();
  work->immediate = immediate;
  work->port = &port;
  work->rank = port.rank_;
  work->peer = peer.id;
  work->is_under_way = true;
  work->source = source.data();
  work->region = region;
  work->destination = destination;
  work->share = peer.share;
  work->work = id;
  ++peer.writes;
  ++port.network_writes_;
  append(node, *work);
  attend(node);
  static_cast<void>(move_writes(node));
  return Status::kOk;
}

void Exchange::append(ExchangeNode& node, ExchangeWork& work) noexcept {
  work.next = nullptr;
  if (node.writing == nullptr)
    node.writing = &work;
  else
    node.last_writing->next = &work;
  node.last_writing = &work;
}

/// Posts a part of each write that may go on, in turn. Returns how many.
std::size_t Exchange::move_writes(ExchangeNode& node) noexcept {
  std::size_t posted = 0;
  const ExchangeWork* const last = node.last_writing;
  for (bool is_last = node.writing == nullptr; !is_last;) {
    ExchangeWork& work = *node.writing;
    is_last = &work == last;
    const Posting posting = post_part(node, work);
    if (posting == Posting::kNoRoom) return posted;
    node.writing = static_cast<ExchangeWork*>(work.next);
    posted += posting == Posting::kPosted;
    if (posting == Posting::kFailed) {
      work.posted_bytes = work.length_bytes;
      if (work.parts == 0) finish(work);
    } else if (work.posted_bytes < work.length_bytes) {
      append(node, work);
    }
  }
  return posted;
}

Exchange::Posting Exchange::post_part(ExchangeNode& node, ExchangeWork& work) noexcept {
  if (node.is_down || work.port == nullptr || work.from->ends) work.status = Status::kPeerFailed;
  if (work.status != Status::kOk) return Posting::kFailed;
  if (work.parts >= kMostParts || work.port->is_silent_) return Posting::kMustWait;
  if (work.share->left_bytes <= 0) {
    node.is_denied = true;
    return Posting::kMustWait;
  }
  work.share->refused_at = turn_;  // Unless there is room.
  if (node.reserved_by != nullptr) {
    if (node.is_slot_late) return Posting::kNoRoom;
    node.reserved_by = nullptr;  // It was given up: whoever fills a slot goes on to commit it.
  }
  const std::size_t part = std::min(work.length_bytes - work.posted_bytes, kPartBytes);
  const RemoteMemory to{work.destination.address + work.posted_bytes, work.destination.remote_key};
  const Status status = network_->write(*node.endpoint, work.source + work.posted_bytes, part, work.region,
                                        to, work.immediate, WorkId{work.index});
  if (status == Status::kAgain) return Posting::kNoRoom;
  work.share->refused_at = 0;
  work.status = status;
  if (status != Status::kOk) return Posting::kFailed;
  work.posted_bytes += part;
  ++work.parts;
  work.share->left_bytes -= static_cast<std::int64_t>(part);
  return Posting::kPosted;
}

void Exchange::on_write_done(PeerId, WorkId id, Status status) noexcept {
  ExchangeWork& work = works_[static_cast<std::size_t>(id)];
  ExchangeNode& node = *work.node;
  --work.parts;
  if (work.status == Status::kOk) work.status = status;
  if (status == Status::kOk) work.done_bytes = std::min(work.done_bytes + kPartBytes, work.length_bytes);
  attend(node);
  if (work.parts == 0 && work.posted_bytes == work.length_bytes) finish(work);
}

/// Nothing of it is under way any more.
void Exchange::finish(ExchangeWork& work) noexcept {
  work.is_under_way = false;
  if (work.status == Status::kUnsupported && work.done_bytes > 0) {
    work.status = Status::kPeerFailed;  // The peer has counted a part: it must not come again.
    distrust(*work.node);
  }
  if (ExchangePort* const port = work.port; port != nullptr) {
    ExchangeEndpoint& peer = *work.from;
    --peer.writes;
    peer.must_end |= work.must_end;
    peer.must_answer |= work.must_answer;
    port->put(work);
    if (peer.ends) port->go_on_ending(peer);
    return;
  }
  const ExchangeWork over = work;
  free_work(work);
  clear_remains(over.rank);
  if (ExchangeWork* const other = find_work(over.rank, over.peer)) {
    other->must_end |= over.must_end;
    other->must_answer |= over.must_answer;
    return;
  }
  if (over.must_end) tell(*over.node, ExchangeFrame::Kind::kEnd, over.rank, over.peer);
  if (over.must_answer) tell(*over.node, ExchangeFrame::Kind::kEnded, over.rank, over.peer);
}

/// A write of that process that is under way to that peer. Null: there is none.
ExchangeWork* Exchange::find_work(PeerId rank, PeerId peer) noexcept {
  for (ExchangeWork& work : works_)
    if (work.is_under_way && work.rank == rank && work.peer == peer) return &work;
  return nullptr;
}

/// The port goes. What follows its writes is sent when they are over.
void Exchange::disown_works(ExchangePort& port) noexcept {
  for (ExchangeWork& work : works_) {
    if (work.port != &port || !work.is_under_way) continue;
    work.must_end |= work.from->must_end;
    work.must_answer |= work.from->must_answer;
    work.port = nullptr;
    work.from = nullptr;
    attend(*work.node);
  }
}

/// The port goes. What it has registered stays, as long as somebody uses it.
void Exchange::take_remains(ExchangePort& port) noexcept {
  const PeerId rank = port.rank_;
  seats_[index_of(rank)].ended = nullptr;
  std::unique_ptr<ExchangeRemains> remains = std::move(port.remains_);
  remains->rank = rank;
  remains->peers = std::move(port.peers_);
  remains->regions = std::move(port.regions_);
  remains->memory = std::move(port.memory_);
  remains->next = std::exchange(remains_, nullptr);
  remains_ = std::move(remains);
  clear_remains(rank);
}

/// `writer`, of that node, has said that it writes nothing more to memory of `of`, which has gone.
void Exchange::hear_last_of(ExchangeNode& node, PeerId writer, PeerId of) noexcept {
  const auto hear = [&](const std::vector<std::unique_ptr<ExchangeEndpoint>>& peers) {
    ExchangeEndpoint* const peer = index_of(writer) < peers.size() ? peers[index_of(writer)].get() : nullptr;
    if (peer != nullptr && peer->node == &node) peer->writes_no_more = true;
  };
  if (index_of(of) >= seats_.size()) return;
  if (const ExchangePort* const ended = seats_[index_of(of)].ended) return hear(ended->peers_);
  for (const ExchangeRemains* one = remains_.get(); one != nullptr; one = one->next.get())
    if (one->rank == of) hear(one->peers);
  clear_remains(of);
}

bool Exchange::is_in_use(const ExchangeRemains& remains) const noexcept {
  if (remains.regions.empty()) return false;
  const auto may_write = [](const auto& peer) {
    return peer != nullptr && peer->is_known && peer->node != nullptr && !peer->node->is_down &&
           !peer->writes_no_more;
  };
  return std::ranges::any_of(remains.peers, may_write) ||
         std::ranges::any_of(works_, [&](const ExchangeWork& work) {
           return work.is_under_way && work.rank == remains.rank;
         });
}

/// Of that process, or of all, if nobody uses them any more.
void Exchange::clear_remains(std::optional<PeerId> rank) noexcept {
  for (std::unique_ptr<ExchangeRemains>* link = &remains_; *link != nullptr;) {
    if (((*link)->rank != rank.value_or((*link)->rank)) || is_in_use(**link)) {
      link = &(*link)->next;
      continue;
    }
    for (auto& [key, region] : (*link)->regions) network_->deregister_memory(region);
    *link = std::move((*link)->next);
  }
}

void Exchange::on_write_arrived(PeerId leader, Immediate immediate, std::size_t length_bytes) noexcept {
  const std::uint32_t number = static_cast<std::uint32_t>(immediate) >> kLandingBits;
  ExchangePort* const here = number < numbered_.size() ? port(numbered_[number]) : nullptr;
  if (here == nullptr) return;
  ExchangeNode* node = nullptr;
  try {
    node = &find_or_make(leader);
  } catch (const std::bad_alloc&) {
    return;  // Nothing was granted to a node from which nothing has come.
  }
  ExchangeItem* const item = make_item(0);
  if (item == nullptr) return distrust(*node);  // Whoever waits for it must not wait for ever.
  item->kind = ExchangeItem::Kind::kWritten;
  item->node = node;
  item->immediate = immediate;
  item->length_bytes = length_bytes;
  here->put(*item);
}

/// The next poll() ends the connection with it.
void Exchange::distrust(ExchangeNode& node) noexcept {
  node.fails = true;
  attend(node);
}

/// Says whose write it was. One whose landing is over is of a peer that has failed: over a second rail it may
/// come behind the frame that ends the connection.
void ExchangePort::deliver_write(ExchangeItem& item, Sink& sink) noexcept {
  if (item.from != nullptr) return sink.on_write_arrived(item.from->id, item.immediate, item.length_bytes);
  const std::optional<PeerId> writer = sink.writer_of(item.immediate);
  if (!writer) return;
  const ExchangeEndpoint* peer = find(*writer);
  try {
    // A write may come before the frame by which its process connects.
    if (peer == nullptr || !peer->is_known) peer = exchange_.meet(*item.node, *writer, rank_);
  } catch (const std::bad_alloc&) {
    return exchange_.distrust(*item.node);
  }
  if (peer == nullptr) return;
  if (peer->node != item.node) return exchange_.distrust(*item.node);
  sink.on_write_arrived(peer->id, item.immediate, item.length_bytes);
}

}  // namespace ch3_offload

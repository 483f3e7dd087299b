// The network's side of the fake: the clock, what is in flight, deaths.

#include "rdma/fake_network.h"

#include <algorithm>
#include <cstring>

namespace ch3_offload {

FakeNetwork::FakeNetwork(const FakeConfig& config) : config_(config), random_(config.seed) {}

FakeNetwork::~FakeNetwork() {
  for (; !events_.empty(); events_.pop()) delete events_.top().item;
}

std::unique_ptr<FakeProvider> FakeNetwork::make_provider(PeerId self) {
  if (processes_.size() <= index_of(self)) processes_.resize(index_of(self) + 1, nullptr);
  std::unique_ptr<FakeProvider> provider(new FakeProvider(*this, self));
  processes_[index_of(self)] = provider.get();
  return provider;
}

FakeProvider* FakeNetwork::process(PeerId peer) const noexcept {
  return index_of(peer) < processes_.size() ? processes_[index_of(peer)] : nullptr;
}

bool FakeNetwork::alive(PeerId peer) const { return process(peer) != nullptr; }

FakeNetwork::Link* FakeNetwork::find_link(PeerId from, PeerId to) noexcept {
  const auto found = links_.find(std::uint64_t{index_of(from)} << 32 | index_of(to));
  return found == links_.end() ? nullptr : found->second.get();
}

FakeNetwork::Link& FakeNetwork::link(PeerId from, PeerId to) {
  const std::uint64_t key = std::uint64_t{index_of(from)} << 32 | index_of(to);
  std::unique_ptr<Link>& entry = links_[key];
  if (entry == nullptr) {
    entry = std::make_unique<Link>();
    entry->from = from;
    entry->to = to;
    // A property of the pair, not of the moment: asked for again, the answer is the same.
    entry->without_write =
        SeededRandom(config_.seed ^ mix64(key)).chance(config_.pair_without_write_probability);
  }
  return *entry;
}

std::uint64_t FakeNetwork::delay_ns() {
  if (config_.slow_probability > 0 && random_.chance(config_.slow_probability)) {
    return random_.between(config_.most_delay_ns, std::max(config_.most_delay_ns, config_.slow_delay_ns));
  }
  return random_.between(config_.least_delay_ns, config_.most_delay_ns);
}

void FakeNetwork::schedule(std::uint64_t time_ns, EventKind kind, Link& link, Item* item) {
  events_.push({std::max(time_ns, now_ns_), next_order_++, kind, &link, item});
}

bool FakeNetwork::advance() {
  if (events_.empty()) return false;
  now_ns_ = events_.top().time_ns;
  simulated_now_ns = now_ns_;
  while (!events_.empty() && events_.top().time_ns == now_ns_) {
    const Event event = events_.top();
    events_.pop();
    switch (event.kind) {
      case EventKind::kArrival: arrive(*event.link, false); break;
      case EventKind::kWriteArrival: arrive(*event.link, true); break;
      case EventKind::kWriteAcknowledged: {
        std::unique_ptr<Item> done(event.item);
        if (FakeProvider* const sender = process(event.link->from)) sender->enqueue(std::move(done));
        break;
      }
      case EventKind::kDeathNotice: notice_death(*event.link); break;
    }
  }
  return true;
}

/// Puts an item on the wire.
void FakeNetwork::post(Link& link, Item* item) {
  item->lost = link.severed;
  const bool is_write = item->kind == FakeItemKind::kWrite;
  Link::Lane& lane = is_write ? link.writes : link.messages;
  lane.in_flight.emplace_back(item);
  lane.last_arrival_ns = std::max(lane.last_arrival_ns, now_ns_ + delay_ns());
  schedule(lane.last_arrival_ns, is_write ? EventKind::kWriteArrival : EventKind::kArrival, link);
}

void FakeNetwork::arrive(Link& link, bool is_write) {
  Link::Lane& lane = is_write ? link.writes : link.messages;
  std::unique_ptr<Item> item = std::move(lane.in_flight.front());
  lane.in_flight.pop_front();
  if (item->flushed) return;
  FakeProvider* const receiver = process(link.to);
  const bool lost = item->lost || receiver == nullptr;
  if (item->kind == FakeItemKind::kWrite) {
    if (lost) return acknowledge(link, std::move(item), Status::kPeerFailed);
    return arrive_write(link, std::move(item));
  }
  if (lost) return;  // Its slot is not given back: the sender sees a full queue, then the failure.
  if (item->kind == FakeItemKind::kMessage)
    damage({item->bytes.get(), item->length_bytes}, config_.damaged_message_probability);
  receiver->enqueue(std::move(item));
}

void FakeNetwork::arrive_write(Link& link, std::unique_ptr<Item> item) {
  if (random_.chance(config_.late_unsupported_probability)) {
    return acknowledge(link, std::move(item), Status::kUnsupported);
  }
  if (!copy_write(*item, item->length_bytes)) {  // A device would break the connection, too.
    const PeerId from = link.from;
    const PeerId to = link.to;
    acknowledge(link, std::move(item), Status::kPeerFailed);
    return break_connection(from, to);
  }
  ++writes_delivered_;
  bytes_delivered_ += item->length_bytes;
  damage({reinterpret_cast<std::byte*>(item->destination.address), item->length_bytes},
         config_.damaged_write_probability);
  // In parts now and then, as a provider may.
  for (std::size_t told = 0; told < item->length_bytes || told == 0;) {
    const std::size_t left = item->length_bytes - told;
    const bool split = left > 1 && random_.chance(config_.split_write_probability);
    auto arrived = std::make_unique<Item>();
    arrived->kind = FakeItemKind::kWriteArrived;
    arrived->peer = link.from;
    arrived->immediate = item->immediate;
    arrived->length_bytes = split ? random_.between(1, left - 1) : left;
    told += arrived->length_bytes;
    process(link.to)->enqueue(std::move(arrived));
    if (item->length_bytes == 0) break;
  }
  acknowledge(link, std::move(item), Status::kOk);
}

/// Nothing is drawn where nothing is damaged: a seed means what it meant before.
void FakeNetwork::damage(std::span<std::byte> bytes, double probability) {
  if (probability == 0 || bytes.empty() || !random_.chance(probability)) return;
  ++damaged_;
  bytes[random_.below(bytes.size())] ^= std::byte{1} << random_.below(8);
}

/// Copies the head of a write to its destination; false (and a violation) if it may not.
bool FakeNetwork::copy_write(const Item& item, std::size_t length_bytes) {
  const Link& link = *item.link;
  FakeProvider& receiver = *process(link.to);
  auto* const destination = reinterpret_cast<std::byte*>(item.destination.address);
  const FakeProvider::Region* const region = receiver.find_region(
      static_cast<std::uint64_t>(item.destination.remote_key), destination, item.length_bytes);
  if (region == nullptr || region->access != Access::kWrite) {
    const std::string where = " registration of process " + std::to_string(index_of(link.to));
    if (link.severed) {
      violation(link.to, "took memory back before on_peer_down(), while a peer that failed could write to it");
    } else {
      violation(link.from, "wrote outside a live" + where);
    }
    return false;
  }
  const std::byte* source = item.bytes.get();
  if (source == nullptr) {
    source = item.source;
    FakeProvider* const sender = process(link.from);
    if (sender == nullptr || sender->find_region(item.source_key, source, item.length_bytes) == nullptr) {
      violation(link.from, "deregistered the source of a write before on_write_done");
      return false;
    }
  }
  if (length_bytes > 0) std::memcpy(destination, source, length_bytes);
  return true;
}

void FakeNetwork::acknowledge(Link& link, std::unique_ptr<Item> write, Status status) {
  if (process(link.from) == nullptr) return;
  write->kind = FakeItemKind::kWriteDone;
  write->peer = link.to;
  write->status = status;
  write->bytes.reset();
  link.last_acknowledge_ns = std::max(link.last_acknowledge_ns, now_ns_ + delay_ns());
  schedule(link.last_acknowledge_ns, EventKind::kWriteAcknowledged, link, write.release());
}

/// Loses what is in flight behind a random cut, and all that is posted later.
void FakeNetwork::sever(Link& link) {
  if (link.severed) return;
  link.severed = true;
  const bool sender_dies = process(link.from) == nullptr;
  std::size_t cut = random_.below(link.messages.in_flight.size() + 1);
  for (const std::unique_ptr<Item>& item : link.messages.in_flight) {
    item->lost = cut == 0;
    if (cut > 0) --cut;
  }
  cut = random_.below(link.writes.in_flight.size() + 1);
  bool first_lost = true;
  for (const std::unique_ptr<Item>& item : link.writes.in_flight) {
    item->lost = cut == 0;
    if (cut > 0) --cut;
    if (item->lost && !first_lost) continue;
    if (sender_dies) {  // It has left the sender, whose memory may be gone before it arrives.
      item->bytes = std::make_unique<std::byte[]>(item->length_bytes + 1);
      if (item->length_bytes > 0) std::memcpy(item->bytes.get(), item->source, item->length_bytes);
    }
    if (!item->lost) continue;
    first_lost = false;
    if (process(link.to) == nullptr) continue;
    static_cast<void>(copy_write(*item, random_.below(item->length_bytes + 1)));
  }
}

void FakeNetwork::plan_notice(Link& survivor_to_dead) {
  if (survivor_to_dead.notice_planned || process(survivor_to_dead.from) == nullptr) return;
  survivor_to_dead.notice_planned = true;
  schedule(now_ns_ + random_.below(config_.most_death_notice_delay_ns + 1), EventKind::kDeathNotice,
           survivor_to_dead);
}

void FakeNetwork::notice_death(Link& outgoing) {
  FakeProvider* const survivor = process(outgoing.from);
  if (survivor == nullptr) return;
  // All that will arrive, and all completions, come first: also those of the same nanosecond.
  Link& incoming = link(outgoing.to, outgoing.from);
  std::uint64_t wait_until_ns = outgoing.last_acknowledge_ns + 1;
  for (const Link::Lane* lane : {&incoming.messages, &incoming.writes}) {
    for (const std::unique_ptr<Item>& item : lane->in_flight) {
      if (!item->lost) wait_until_ns = std::max(wait_until_ns, lane->last_arrival_ns + 1);
    }
  }
  if (wait_until_ns > now_ns_) return schedule(wait_until_ns, EventKind::kDeathNotice, outgoing);
  outgoing.failed = true;
  for (const std::unique_ptr<Item>& item : outgoing.writes.in_flight) {
    item->flushed = true;
    auto done = std::make_unique<Item>();
    done->kind = FakeItemKind::kWriteDone;
    done->peer = outgoing.to;
    done->status = Status::kPeerFailed;
    done->work = item->work;
    done->source_key = item->source_key;
    survivor->enqueue(std::move(done));
  }
  auto down = std::make_unique<Item>();
  down->kind = FakeItemKind::kPeerDown;
  down->peer = outgoing.to;
  down->status = Status::kPeerFailed;
  survivor->enqueue(std::move(down));
}

void FakeNetwork::kill(PeerId peer) {
  FakeProvider* const dead = process(peer);
  if (dead == nullptr) return;
  dead->drop_inbox();
  processes_[index_of(peer)] = nullptr;
  std::vector<Link*> affected;
  for (const auto& [key, entry] : links_) {
    if (entry->from == peer || entry->to == peer) affected.push_back(entry.get());
  }
  std::sort(affected.begin(), affected.end(), [](const Link* a, const Link* b) {
    return a->from != b->from ? a->from < b->from : a->to < b->to;
  });
  for (Link* entry : affected) {
    sever(*entry);
    if (entry->to == peer) {
      plan_notice(*entry);
    } else {
      plan_notice(link(entry->to, peer));
    }
  }
}

void FakeNetwork::break_connection(PeerId one, PeerId other) {
  Link& there = link(one, other);
  Link& back = link(other, one);
  sever(there);
  sever(back);
  plan_notice(there);
  plan_notice(back);
}

void FakeNetwork::refuse_connections(PeerId by, PeerId of) {
  link(by, of).failed = true;
  sever(link(of, by));
}

void FakeNetwork::forget(FakeProvider& provider) {
  if (process(provider.self_) == &provider) kill(provider.self_);
}

void FakeNetwork::inject(PeerId from, PeerId to, std::span<const std::byte> message) {
  Link& path = link(from, to);
  auto item = std::make_unique<Item>();
  item->kind = FakeItemKind::kMessage;
  item->injected = true;
  item->peer = from;
  item->link = &path;
  item->length_bytes = message.size();
  item->bytes.reset(new std::byte[message.size()]);
  if (!message.empty()) std::memcpy(item->bytes.get(), message.data(), message.size());
  if (FakeProvider* const sender = process(from)) sender->post_parts(path);
  post(path, item.release());
}

void FakeNetwork::inject_immediate(PeerId from, PeerId to, Immediate immediate, std::size_t length_bytes) {
  Link& path = link(from, to);
  auto item = std::make_unique<Item>();
  item->kind = FakeItemKind::kWriteArrived;
  item->injected = true;
  item->peer = from;
  item->link = &path;
  item->immediate = immediate;
  item->length_bytes = length_bytes;
  post(path, item.release());
}

void FakeNetwork::inject_share(PeerId from, PeerId to, Immediate immediate, std::size_t length_bytes,
                               std::byte*& answer) {
  Link& path = link(from, to);
  auto item = std::make_unique<Item>();
  item->kind = FakeItemKind::kWriteShared;
  item->injected = true;
  item->peer = from;
  item->link = &path;
  item->immediate = immediate;
  item->length_bytes = length_bytes;
  item->answer = &answer;
  post(path, item.release());
}

void FakeNetwork::violation(PeerId who, const std::string& what) {
  if (violations_.size() < 100) {
    violations_.push_back("process " + std::to_string(index_of(who)) + " at " + std::to_string(now_ns_) +
                          " ns: " + what);
  }
}

}  // namespace ch3_offload

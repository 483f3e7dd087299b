// The shm provider against processes that hold its address: connections, Hellos and Welcomes with any bytes
// and any files, rings filled with anything, wake-ups and ends in any order. Input: steps until it ends.
//
// What the secret keeps out is tried, too: the forged Hellos know it, or nothing behind it would be reached.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <set>

#include "fuzz/target.h"
#include "rdma/shm/shm_provider.h"

namespace ch3_offload::fuzz {
namespace handshake_target {

constexpr PeerId kVictim{1};
constexpr std::uint32_t kPeerLimit = 4;
constexpr std::size_t kRingBytes = kLeastRingBytes;
constexpr std::size_t kFileBytes = ring_file_bytes(kRingBytes);
constexpr std::size_t kConnections = 4;

enum class Step : std::uint8_t {
  kConnect,         ///< c: a connection of the attacker's; the one before of that number ends
  kHello,           ///< c, sender, file, flip: position and value (0: none)
  kRaw,             ///< c, file, length, the bytes
  kRecord,          ///< c, kind, length (u16): a record in the ring that c sent
  kMemory,          ///< c, offset / 8 (u16), u64: anything in that ring's file
  kWake,            ///< c, count
  kClose,           ///< c
  kPoll,            ///< armed or not
  kVictimConnects,  ///< to peer 0
  kAccept,          ///< the attacker accepts that
  kWelcome,         ///< file, flip: position and value
  kVictimSends,     ///< length (u16)
  kAnswer,          ///< raw bytes on the accepted connection: length, the bytes
  kReturn,          ///< u64: the word that says what was consumed
  kCheck,           ///< the bytes alone, without a provider: length, the bytes
  kCount
};

/// What is attached to a message.
enum class FileKind : std::uint8_t { kRing, kUnsealed, kShort, kDoorbell, kSocket, kNone, kTwo, kCount };

JobSecret secret() {
  JobSecret secret;
  secret.fill(std::byte{0x5A});
  return secret;
}

FileDescriptor shared_file(std::size_t length_bytes) {
  Result<FileDescriptor> file = make_shared_file("fuzz", length_bytes);
  require(file.ok(), "there is memory for a file");
  return std::move(file.value());
}

/// Sends bytes with any number of files.
void send_bytes(const FileDescriptor& socket, std::span<const std::byte> bytes, std::span<const int> files) {
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!files.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr* const attached = CMSG_FIRSTHDR(&message);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(attached), files.data(), files.size_bytes());
  }
  static_cast<void>(::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

class Attack final : public Sink {
 public:
  explicit Attack(std::span<const std::byte> bytes) : input_(bytes) {
    ShmConfig config;
    config.self = kVictim;
    config.job_secret = secret();
    config.ring_bytes = kRingBytes;
    config.bulk = BulkMethod::kStream;
    config.peer_limit = kPeerLimit;
    Result<std::unique_ptr<ShmProvider>> made = ShmProvider::create(config);
    require(made.ok(), "a provider can be made");
    victim_ = std::move(made.value());
    victims_address_ = *ShmAddress::parse(victim_->local_address());
    own_address_ = victims_address_;
    own_address_.socket_id[0] ^= 1;
  }

  void run() {
    for (int steps = 0; !input_.empty() && steps < 200; ++steps)
      take(Step{input_.below(static_cast<std::uint8_t>(Step::kCount))});
    // The end of all connections is the end of all peers that were accepted.
    for (Connection& connection : connections_) connection = {};
    accepted_.reset();
    listener_.reset();
    for (int i = 0; i < 100; ++i) poll(true);  // A ring holds a thousand records at most.
    for (const PeerId peer : heard_) require(down_.count(peer) == 1, "who was heard of and is gone is down");
  }

  Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept override {
    require(!message.empty() && message.size() <= longest_payload(kRingBytes),
            "a message has a possible length");
    touch(message);
    hear(peer);
    return Delivery::kTaken;
  }
  void on_write_arrived(PeerId peer, Immediate, std::size_t) noexcept override { hear(peer); }
  void on_write_done(PeerId, WorkId, Status) noexcept override { require(false, "nothing was written"); }
  void on_peer_down(PeerId peer, Status reason) noexcept override {
    require(index_of(peer) < kPeerLimit, "peers are below the limit");
    require(reason == Status::kPeerFailed || reason == Status::kProtocol, "an end has a reason");
    require(down_.insert(peer).second, "a peer goes down once");
  }

 private:
  struct Connection {
    FileDescriptor socket;
    FileDescriptor file;  ///< Of the ring that was sent last.
    Mapping memory;       ///< Of that file, once.
    std::uint64_t written = 0;
  };

  void hear(PeerId peer) {
    require(index_of(peer) < kPeerLimit, "peers are below the limit");
    require(down_.count(peer) == 0, "nothing comes from who is down");
    heard_.insert(peer);
  }
  Connection& connection() { return connections_[input_.below(kConnections)]; }

  void take(Step step);
  void poll(bool armed) {
    if (armed) static_cast<void>(victim_->arm());
    victim_->poll(*this, 64);
    victim_->disarm();
  }
  void connect(Connection& connection);
  void send(Connection& connection, std::span<const std::byte> bytes, FileKind kind);
  void record(Connection& connection);
  void victim_connects();
  void welcome();
  void victim_sends(std::size_t length_bytes);
  void check(std::span<const std::byte> bytes);

  Input input_;
  std::unique_ptr<ShmProvider> victim_;
  Endpoint* endpoint_ = nullptr;  ///< The victim's, of peer 0. nullptr: it has not connected.
  ShmAddress victims_address_;
  ShmAddress own_address_;
  std::array<Connection, kConnections> connections_;
  FileDescriptor listener_;
  FileDescriptor accepted_;  ///< The connection that the victim made.
  Mapping victims_ring_;
  FileDescriptor bits_file_;
  std::set<PeerId> heard_;
  std::set<PeerId> down_;
};

/// Changes one byte, or none.
void flip(std::span<std::byte> bytes, std::uint8_t position, std::uint8_t value) {
  bytes[position % bytes.size()] ^= std::byte{value};
}

void Attack::connect(Connection& connection) {
  connection = {};
  Result<FileDescriptor> socket = make_socket();
  require(socket.ok(), "there are descriptors");
  if (connect_to(socket.value(), victims_address_).ok()) connection.socket = std::move(socket.value());
}

void Attack::send(Connection& connection, std::span<const std::byte> bytes, FileKind kind) {
  if (!connection.socket.valid()) return;
  switch (kind) {
    case FileKind::kUnsealed:
      connection.file = FileDescriptor(::memfd_create("fuzz", MFD_CLOEXEC));
      require(::ftruncate(connection.file.get(), kFileBytes) == 0, "there is memory for a file");
      break;
    case FileKind::kShort: connection.file = shared_file(kRingBytes); break;
    case FileKind::kDoorbell: connection.file = shared_file(kDoorbellBytes); break;
    case FileKind::kSocket:
      connection.file = FileDescriptor(::fcntl(connection.socket.get(), F_DUPFD_CLOEXEC, 0));
      break;
    default: {
      connection.file = shared_file(kFileBytes);
      Result<Mapping> memory = map_shared(connection.file, kFileBytes, MapAccess::kReadWrite);
      require(memory.ok(), "a file can be mapped");
      connection.memory = std::move(memory.value());
      connection.written = 0;
    }
  }
  const int file = connection.file.get();
  const std::array<int, 2> files = {file, file};
  const std::size_t count = kind == FileKind::kNone ? 0 : kind == FileKind::kTwo ? 2 : 1;
  send_bytes(connection.socket, bytes, std::span(files).first(count));
}

void Attack::record(Connection& connection) {
  const auto kind = static_cast<RecordKind>(1 + input_.u8());
  const std::size_t length = input_.u16();
  if (!connection.memory.valid()) return;
  std::byte* const records = ring_in(connection.memory) + kRingControlBytes;
  const std::uint64_t header = RecordHeader::pack(connection.written, kind, length);
  std::memcpy(records + (connection.written & (kRingBytes - 1)), &header, sizeof header);
  connection.written += record_bytes(length);
}

void Attack::victim_connects() {
  if (!listener_.valid()) {
    Result<FileDescriptor> listener = listen_at(own_address_);
    require(listener.ok(), "there are descriptors");
    listener_ = std::move(listener.value());
  }
  const std::string known = victim_->address_of(PeerId{0});  // Its Hello may have said anything.
  const std::string address = known.empty() ? own_address_.to_string() : known;
  require(victim_->reaches(address), "an address that a peer gave has the form of one");
  Result<Endpoint*> connected = victim_->connect(PeerId{0}, address);
  if (!connected.ok()) return;
  require(endpoint_ == nullptr || endpoint_ == connected.value(), "a peer has one endpoint");
  endpoint_ = connected.value();
}

void Attack::welcome() {
  const auto kind = FileKind{input_.below(static_cast<std::uint8_t>(FileKind::kCount))};
  Welcome message;
  const auto bytes = std::as_writable_bytes(std::span(&message, 1));
  const std::uint8_t position = input_.u8();
  flip(bytes, position, input_.u8());
  if (!accepted_.valid()) return;
  // A ring's place is a doorbell's here.
  static_assert(kDoorbellBytes == kActivityBytes);
  const bool right = kind == FileKind::kRing || kind == FileKind::kTwo;
  const FileDescriptor first = shared_file(right ? kDoorbellBytes : kRingBytes);
  bits_file_ = shared_file(kind == FileKind::kShort ? kRingBytes : kActivityBytes);
  const std::array<int, 2> files = {first.get(), bits_file_.get()};
  const std::size_t count = kind == FileKind::kNone ? 0 : kind == FileKind::kTwo ? 1 : 2;
  send_bytes(accepted_, bytes, std::span(files).first(count));
}

void Attack::victim_sends(std::size_t length_bytes) {
  length_bytes = 1 + length_bytes % victim_->capabilities().max_slot_bytes;
  std::span<std::byte> slot;
  if (endpoint_ == nullptr || victim_->reserve(*endpoint_, length_bytes, slot) != Status::kOk) return;
  require(slot.size() == length_bytes, "a slot has the length that was asked for");
  std::memset(slot.data(), 0x56, slot.size());
  victim_->commit(*endpoint_, length_bytes);
}

/// The two parsers, with bytes that no socket brought.
void Attack::check(std::span<const std::byte> bytes) {
  Hello hello;
  if (check_hello(bytes, secret(), kVictim, kPeerLimit, hello).empty()) {
    require(hello.sender < kPeerLimit && hello.sender != index_of(kVictim) &&
                hello.receiver == index_of(kVictim) && hello.secret == secret(),
            "a Hello that is accepted is right");
    require(std::memcmp(&hello, bytes.data(), sizeof hello) == 0, "a Hello is taken as it is");
  }
  Welcome welcome;
  if (check_welcome(bytes, welcome)) {
    Welcome right;
    right.activity_bit = welcome.activity_bit;
    require(welcome.activity_bit < kMostActivityBits, "there is such a bit");
    require(std::memcmp(&right, bytes.data(), sizeof right) == 0, "Welcomes differ in their bit alone");
  }
}

void Attack::take(Step step) {
  switch (step) {
    case Step::kConnect: return connect(connection());
    case Step::kHello: {
      Connection& to = connection();
      Hello hello;
      hello.sender = input_.below(kPeerLimit + 1);
      hello.receiver = index_of(kVictim);
      hello.own = hello.sender;
      hello.known_as = hello.receiver;
      hello.ring_bytes = kRingBytes;
      hello.secret = secret();
      hello.socket_id = own_address_.socket_id;
      const auto kind = FileKind{input_.below(static_cast<std::uint8_t>(FileKind::kCount))};
      const auto bytes = std::as_writable_bytes(std::span(&hello, 1));
      const std::uint8_t position = input_.u8();
      flip(bytes, position, input_.u8());
      check(bytes);
      return send(to, bytes, kind);
    }
    case Step::kRaw: {
      Connection& to = connection();
      const auto kind = FileKind{input_.below(static_cast<std::uint8_t>(FileKind::kCount))};
      return send(to, input_.bytes(input_.u8()), kind);
    }
    case Step::kRecord: return record(connection());
    case Step::kMemory: {
      Connection& of = connection();
      const std::size_t offset = input_.u16() * std::size_t{8} % (kFileBytes - kChunkAreaBytes);
      const std::uint64_t value = input_.u64();
      if (of.memory.valid()) std::memcpy(ring_in(of.memory) + offset, &value, sizeof value);
      return;
    }
    case Step::kWake: {
      Connection& of = connection();
      for (int count = input_.below(16); count > 0 && of.socket.valid(); --count) send_wake_byte(of.socket);
      return;
    }
    case Step::kClose: connection().socket.reset(); return;
    case Step::kPoll: return poll(input_.flag());
    case Step::kVictimConnects: return victim_connects();
    case Step::kAccept: {
      if (!listener_.valid()) return;
      int error_number = 0;
      FileDescriptor socket = accept_from(listener_, error_number);
      if (!socket.valid()) return;
      accepted_ = std::move(socket);
      std::array<std::byte, sizeof(Hello)> bytes;
      FileDescriptor file;
      if (receive_with_files(accepted_, bytes, std::span(&file, 1)) != Receipt::kMessage) return;
      Result<Mapping> ring = map_shared(file, kFileBytes, MapAccess::kReadWrite);
      if (ring.ok()) victims_ring_ = std::move(ring.value());
      return;
    }
    case Step::kWelcome: return welcome();
    case Step::kVictimSends: return victim_sends(input_.u16());
    case Step::kAnswer: {
      const auto bytes = input_.bytes(input_.u8());
      if (accepted_.valid() && !bytes.empty()) send_bytes(accepted_, bytes, {});
      return;
    }
    case Step::kReturn: {
      const std::uint64_t position = input_.u64();
      if (victims_ring_.valid()) std::memcpy(victims_ring_.address(), &position, sizeof position);
      return;
    }
    default: {
      const auto bytes = input_.bytes(input_.u8());
      return check(bytes);
    }
  }
}

std::vector<Bytes> seeds() {
  struct Steps {
    Seed seed;
    Steps& step(Step name, std::initializer_list<std::uint8_t> arguments) {
      seed.u8(static_cast<std::uint8_t>(name));
      for (const std::uint8_t argument : arguments) seed.u8(argument);
      return *this;
    }
    Steps& hello(std::uint8_t connection, std::uint8_t sender, FileKind file, std::uint8_t position = 0,
                 std::uint8_t value = 0) {
      step(Step::kConnect, {connection});
      return step(Step::kHello, {connection, sender, static_cast<std::uint8_t>(file), position, value});
    }
    Steps& poll() { return step(Step::kPoll, {1}); }
  };
  std::vector<Bytes> all;
  const auto add = [&all](const Steps& steps) { all.push_back(steps.seed.done()); };
  // Two peers that send, wake and end.
  add(Steps()
          .hello(0, 0, FileKind::kRing)
          .step(Step::kRecord, {0, 0, 100, 0})
          .poll()
          .hello(1, 2, FileKind::kRing)
          .step(Step::kRecord, {1, 1, 4, 0})
          .step(Step::kWake, {1, 3})
          .poll()
          .step(Step::kRecord, {0, 0, 0xF0, 0x3F})
          .step(Step::kRecord, {0, 0, 0xF0, 0x3F})
          .poll()
          .step(Step::kClose, {0})
          .poll());
  // Every kind of file, and every field of a Hello.
  for (std::uint8_t file = 0; file < static_cast<std::uint8_t>(FileKind::kCount); ++file)
    add(Steps().hello(0, 0, FileKind{file}).poll());
  for (const std::uint8_t position : {0, 4, 6, 8, 12, 16, 18, 24, 40, 56})
    add(Steps().hello(0, 0, FileKind::kRing, position, 1).poll());
  // The same peer twice, once before and once after its end.
  add(Steps().hello(0, 0, FileKind::kRing).poll().hello(1, 0, FileKind::kRing).poll());
  add(Steps()
          .hello(0, 0, FileKind::kRing)
          .poll()
          .step(Step::kClose, {0})
          .hello(1, 0, FileKind::kRing)
          .poll());
  // A record that is none; a message that comes in two pieces.
  add(Steps().hello(0, 0, FileKind::kRing).step(Step::kRecord, {0, 7, 100, 0}).poll());
  add(Steps().step(Step::kConnect, {0}).step(Step::kRaw, {0, 0, 3, 1, 2, 3}).poll());
  // The victim connects, sends, and hears what it should and what it should not.
  for (const std::uint8_t value : {0, 1}) {
    add(Steps()
            .step(Step::kVictimConnects, {})
            .step(Step::kVictimSends, {100, 0})
            .step(Step::kAccept, {})
            .step(Step::kWelcome, {static_cast<std::uint8_t>(FileKind::kRing), 0, value})
            .poll()
            .step(Step::kAnswer, {1, 'w'})
            .poll()
            .step(Step::kReturn, {255, 0, 0, 0, 0, 0, 0, 0})
            .step(Step::kVictimSends, {0xF0, 0x3F})
            .step(Step::kVictimSends, {0xF0, 0x3F})
            .step(Step::kVictimSends, {0xF0, 0x3F})
            .step(Step::kVictimSends, {0xF0, 0x3F})
            .step(Step::kVictimSends, {0xF0, 0x3F})
            .poll()
            .hello(0, 0, FileKind::kRing)
            .step(Step::kRecord, {0, 0, 9, 0})
            .poll());
  }
  add(Steps().step(Step::kVictimConnects, {}).step(Step::kAccept, {}).step(Step::kWelcome, {2, 0, 0}).poll());
  // The victim connects to where the Hello says, and hears a Hello that says another address than it knows.
  for (const std::uint8_t value : {0, 1}) {
    add(Steps()
            .hello(0, 0, FileKind::kRing, 40, value)
            .poll()
            .step(Step::kVictimConnects, {})
            .step(Step::kAccept, {})
            .step(Step::kWelcome, {0, 0, 0})
            .poll());
    add(Steps().step(Step::kVictimConnects, {}).hello(0, 0, FileKind::kRing, 47, value).poll());
  }
  add(Steps().step(Step::kVictimConnects, {}).step(Step::kAccept, {}).step(Step::kAnswer, {2, 1, 2}).poll());
  return all;
}

const Target kTarget(
    "handshake", [](std::span<const std::byte> input) { Attack(input).run(); }, seeds);

}  // namespace handshake_target
}  // namespace ch3_offload::fuzz

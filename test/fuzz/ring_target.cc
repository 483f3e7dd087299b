// The records of a shared-memory ring, whose memory belongs to the peer as well: a consumer whose producer
// writes anything, and a producer whose consumer returns anything. Input: steps until it ends.

#include <cstring>

#include "fuzz/target.h"
#include "rdma/shm/ring.h"
#include "rdma/shm/shared_memory.h"

namespace ch3_offload::fuzz {
namespace ring_target {

constexpr std::size_t kRingBytes = kLeastRingBytes;

enum class Step : std::uint8_t {
  kRecord,    ///< A record behind the last one: kind (u8, 0 and 1 valid), length (u16)
  kHeader,    ///< The header behind the last record: u64
  kBytes,     ///< Anywhere: offset (u16), length (u8), the bytes
  kGiveBack,  ///< What the consumer writes: u8 (0: all that was published, 1: nothing, else raw), u64
  kConsume,   ///< So many records at most: u8
  kRelease,
  kPublish,  ///< The producer under attack: length (u16)
  kWait,     ///< It announces that it waits, for a length (u16)
  kCount
};

/// The one mapping of this program: mappings cost more than all the rest.
std::byte* ring_memory() {
  static const Mapping mapping = [] {
    Result<FileDescriptor> file = make_shared_file("fuzz-ring", kRingControlBytes + kRingBytes);
    require(file.ok(), "there is memory for a ring");
    Result<Mapping> mapped = map_mirrored(file.value(), kRingControlBytes, kRingBytes);
    require(mapped.ok(), "a ring can be mapped");
    return std::move(mapped.value());
  }();
  std::memset(mapping.address(), 0, sizeof(RingControl));
  std::memset(mapping.address() + kRingControlBytes, 0, kRingBytes);
  return mapping.address();
}

class Ring {
 public:
  explicit Ring(std::span<const std::byte> bytes)
      : input_(bytes),
        memory_(ring_memory()),
        records_(memory_ + kRingControlBytes),
        consumer_(memory_, kRingBytes),
        producer_(memory_, kRingBytes, kRingBytes) {}

  void run() {
    while (!input_.empty()) {
      switch (Step{input_.below(static_cast<std::uint8_t>(Step::kCount))}) {
        case Step::kRecord: record(); break;
        case Step::kHeader: store_header(input_.u64()); break;
        case Step::kBytes: {
          const std::size_t offset = input_.u16();
          const auto bytes = input_.bytes(input_.u8());
          if (!bytes.empty()) std::memcpy(records_ + offset, bytes.data(), bytes.size());
          break;
        }
        case Step::kGiveBack: give_back(); break;
        case Step::kConsume: consume(input_.u8()); break;
        case Step::kRelease: release(); break;
        case Step::kPublish: publish(input_.u16()); break;
        default: wait(input_.u16()); break;
      }
    }
    consume(255);
    release();
  }

 private:
  void store_header(std::uint64_t header) {
    std::memcpy(records_ + (written_ & (kRingBytes - 1)), &header, sizeof header);
  }
  void record() {
    const auto kind = static_cast<RecordKind>(1 + input_.u8());
    const std::size_t length = input_.u16();
    store_header(RecordHeader::pack(written_, kind, length));
    written_ += record_bytes(length);
  }
  void give_back() {
    auto* const word = reinterpret_cast<std::atomic<std::uint64_t>*>(memory_);
    const std::uint8_t choice = input_.u8();
    const std::uint64_t value = input_.u64();
    word->store(choice == 0 ? published_ : choice == 1 ? 0 : value);
  }

  void consume(int most) {
    for (; most > 0; --most) {
      const std::uint64_t header = consumer_.header();
      RingConsumer::Record record;
      if (header == 0) return;
      if (consumer_.is_skip(header)) {
        const std::uint64_t before = consumer_.unreleased_bytes();
        consumer_.skip();
        const std::uint64_t step = consumer_.unreleased_bytes() - before;
        require(step > 0 && step < kRingBytes, "a skip goes to the next beginning of the ring");
        require(!consumer_.is_skip(consumer_.header()), "no skip follows a skip");
        continue;
      }
      if (!consumer_.parse(header, record)) {
        return;  // The provider closes the connection; here the next step may look again.
      }
      require(record.payload.data() > records_ && record.payload.size() <= longest_payload(kRingBytes) &&
                  record.payload.data() + record.payload.size() <= records_ + 2 * kRingBytes,
              "a record lies inside the mapping");
      require(!record.payload.empty(), "a record is not empty");
      require(record.kind != RecordKind::kWrite || record.payload.size() == sizeof(WriteRecord),
              "a write is told in one way");
      require(record.kind != RecordKind::kSharedWrite || record.payload.size() == sizeof(SharedWriteRecord),
              "a write is offered in one way");
      touch(record.payload);
      const std::uint64_t before = consumer_.unreleased_bytes();
      consumer_.advance(record);
      const std::uint64_t step = consumer_.unreleased_bytes() - before;
      require(step % kLineBytes == 0 && step >= record.payload.size() + kRecordHeaderBytes &&
                  step <= kRingBytes / 4,
              "a step over a record is over all of it, and whole lines");
      if (consumer_.unreleased_bytes() >= kRingBytes / 16) release();
    }
  }
  void release() {
    static_cast<void>(consumer_.release());
    require(consumer_.unreleased_bytes() == 0, "all that was read is returned");
  }

  void publish(std::size_t length) {
    length = 1 + length % longest_payload(kRingBytes);
    const bool asks = !fits(length);
    const bool sane = !asks || look_at_consumer();
    const bool has_room = producer_.has_room(length);
    require(has_room == (sane && fits(length)),
            "there is room where the consumer returned it, and nowhere else");
    require(producer_.broken() == broken_, "who returns what it was not given is found out");
    if (!has_room) return;
    std::byte* const payload = producer_.payload();
    require(payload > records_ && payload + length <= records_ + 2 * kRingBytes,
            "a slot lies inside the mapping");
    std::memset(payload, 0x50, length);
    producer_.publish(RecordKind::kMessage, length);
    published_ += record_bytes(length);
  }
  void wait(std::size_t length) {
    length = 1 + length % longest_payload(kRingBytes);
    producer_.announce_waiting();
    const bool sane = look_at_consumer();
    require(producer_.has_room_for_sure(length) == (sane && fits(length)),
            "a second look finds what is there");
    require(producer_.broken() == broken_, "who returns what it was not given is found out");
  }

  /// Whether a record of that length fits, by what the producer knows of the consumer.
  bool fits(std::size_t length) const {
    return published_ + record_bytes(length) + kLineBytes - returned_ <= kRingBytes;
  }
  /// What the producer learns when it looks. False: the word cannot be.
  bool look_at_consumer() {
    std::uint64_t word = 0;
    std::memcpy(&word, memory_, sizeof word);
    const bool sane = word >= returned_ && word <= published_;
    if (sane) returned_ = word;
    broken_ |= !sane;
    return sane;
  }

  Input input_;
  std::byte* const memory_;
  std::byte* const records_;
  RingConsumer consumer_;
  RingProducer producer_;
  std::uint64_t written_ = 0;    ///< Position behind the records of kRecord.
  std::uint64_t published_ = 0;  ///< Position behind the records of kPublish.
  std::uint64_t returned_ = 0;   ///< The consumer's word when the producer last looked and believed it.
  bool broken_ = false;          ///< It did not believe it once.
};

std::vector<Bytes> seeds() {
  const auto step = [](Seed& seed, Step name) -> Seed& { return seed.u8(static_cast<std::uint8_t>(name)); };
  Seed messages;
  for (int i = 0; i < 12; ++i)
    step(messages, Step::kRecord).u8(0).u16(static_cast<std::uint16_t>(16'376 - i));
  step(messages, Step::kConsume).u8(2);
  step(messages, Step::kRelease);
  Seed writes;
  step(writes, Step::kRecord).u8(1).u16(4);
  step(writes, Step::kRecord).u8(1).u16(5);
  Seed around;
  for (int i = 0; i < 9; ++i) {
    step(around, Step::kRecord).u8(0).u16(16'376);
    step(around, Step::kWait).u16(9);
    step(around, Step::kConsume).u8(9);
  }
  Seed producing;
  for (int i = 0; i < 6; ++i) step(producing, Step::kPublish).u16(16'375);
  step(producing, Step::kWait).u16(100);
  step(producing, Step::kConsume).u8(255);
  for (const std::uint8_t choice : {0, 1, 2}) {
    step(producing, Step::kGiveBack).u8(choice).u64(UINT64_MAX);
    step(producing, Step::kPublish).u16(100);
  }
  Seed raw;
  step(raw, Step::kHeader).u64(RecordHeader::pack(0, RecordKind::kMessage, 16'377));
  step(raw, Step::kConsume).u8(1);
  step(raw, Step::kBytes).u16(0).u8(8).u64(RecordHeader::pack(0, RecordKind::kMessage, 3));
  return {messages.done(), writes.done(), around.done(), producing.done(), raw.done()};
}

const Target kTarget(
    "ring", [](std::span<const std::byte> input) { Ring(input).run(); }, seeds);

}  // namespace ring_target
}  // namespace ch3_offload::fuzz

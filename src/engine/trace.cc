#include "engine/trace.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <span>
#include <string_view>

namespace ch3_offload {
namespace {

static_assert(std::endian::native == std::endian::little, "the trace file is little-endian");

/// Bounds of the ring. The upper one (2 GiB of records) turns a slip of the pen into bad_alloc at worst.
constexpr std::size_t kFewestEvents = 1024;
constexpr std::size_t kMostEvents = std::size_t{1} << 26;

/// From calloc(): it takes pages that are 0 from the kernel, and does not write them.
TraceRecord* make_records(std::size_t count) {
  void* const memory = std::calloc(count, sizeof(TraceRecord));
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<TraceRecord*>(memory);
}

std::size_t capacity_for(std::size_t capacity_events) noexcept {
  return std::bit_ceil(std::clamp(capacity_events, kFewestEvents, kMostEvents));
}

std::uint64_t now_ns(clockid_t id) noexcept {
  timespec now{};
  clock_gettime(id, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

/// Reads both clocks as close together as a few tries allow: the real time lies between two readings
/// of `clock`, and the pair with the closest readings (not interrupted in between) is kept.
TraceClockPair sample_clocks(Trace::Clock clock) noexcept {
  constexpr int kTries = 8;
  TraceClockPair best{};
  std::uint64_t narrowest_ns = UINT64_MAX;
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t before = clock();
    const std::uint64_t realtime = now_ns(CLOCK_REALTIME);
    const std::uint64_t after = clock();
    if (after - before >= narrowest_ns) continue;
    narrowest_ns = after - before;
    best = {before + (after - before) / 2, realtime};
  }
  return best;
}

std::uint64_t fnv1a(std::uint64_t hash, std::string_view bytes) noexcept {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01B3;
  return hash;
}

/// Names the clock that CLOCK_MONOTONIC reads: the kernel's boot and the time namespace. Containers of
/// one node share both, whatever their host names. Where /proc does not tell, the host name must do.
std::uint64_t node_id(const char* host) noexcept {
  std::array<char, 64> text{};
  ssize_t length = -1;
  const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    length = read(fd, text.data(), text.size());
    close(fd);
  }
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325;
  if (length <= 0) return fnv1a(hash, host);
  hash = fnv1a(hash, {text.data(), static_cast<std::size_t>(length)});
  length = readlink("/proc/thread-self/ns/time", text.data(), text.size());
  return length > 0 ? fnv1a(hash, {text.data(), static_cast<std::size_t>(length)}) : hash;
}

/// Writes all of `parts`, which it uses up. Returns 0 or errno.
int write_all(int fd, std::span<iovec> parts) noexcept {
  while (!parts.empty()) {
    if (parts.front().iov_len == 0) {
      parts = parts.subspan(1);
      continue;
    }
    const ssize_t written = writev(fd, parts.data(), static_cast<int>(parts.size()));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    std::size_t left = static_cast<std::size_t>(written);
    for (iovec& part : parts) {
      const std::size_t taken = std::min(left, part.iov_len);
      part.iov_base = static_cast<std::byte*>(part.iov_base) + taken;
      part.iov_len -= taken;
      left -= taken;
    }
  }
  return 0;
}

}  // namespace

const char* trace_event_name(TraceEvent event) noexcept {
  switch (event) {
    case TraceEvent::kSendPosted: return "SendPosted";
    case TraceEvent::kSendQueued: return "SendQueued";
    case TraceEvent::kSendBuffered: return "SendBuffered";
    case TraceEvent::kSendShort: return "SendShort";
    case TraceEvent::kSendEager: return "SendEager";
    case TraceEvent::kRtsSent: return "RtsSent";
    case TraceEvent::kOptimisticSent: return "OptimisticSent";
    case TraceEvent::kCtsArrived: return "CtsArrived";
    case TraceEvent::kWritePosted: return "WritePosted";
    case TraceEvent::kWriteDone: return "WriteDone";
    case TraceEvent::kBounceStarted: return "BounceStarted";
    case TraceEvent::kAckArrived: return "AckArrived";
    case TraceEvent::kSendDone: return "SendDone";
    case TraceEvent::kCancelRequested: return "CancelRequested";
    case TraceEvent::kCancelDecided: return "CancelDecided";
    case TraceEvent::kMessageArrived: return "MessageArrived";
    case TraceEvent::kMatched: return "Matched";
    case TraceEvent::kUnexpected: return "Unexpected";
    case TraceEvent::kPayloadDropped: return "PayloadDropped";
    case TraceEvent::kCtsSent: return "CtsSent";
    case TraceEvent::kAckSent: return "AckSent";
    case TraceEvent::kReceiveDone: return "ReceiveDone";
    case TraceEvent::kReceivePosted: return "ReceivePosted";
    case TraceEvent::kReceiveCancelled: return "ReceiveCancelled";
    case TraceEvent::kProbe: return "Probe";
    case TraceEvent::kCreditRequested: return "CreditRequested";
    case TraceEvent::kCreditSent: return "CreditSent";
    case TraceEvent::kPacketSent: return "PacketSent";
    case TraceEvent::kPacketArrived: return "PacketArrived";
    case TraceEvent::kPeerConnected: return "PeerConnected";
    case TraceEvent::kPeerFailed: return "PeerFailed";
    case TraceEvent::kSleep: return "Sleep";
    case TraceEvent::kWake: return "Wake";
    case TraceEvent::kMemoryRegistered: return "MemoryRegistered";
    case TraceEvent::kMemoryRefused: return "MemoryRefused";
    case TraceEvent::kMemoryEvicted: return "MemoryEvicted";
    case TraceEvent::kMemoryGone: return "MemoryGone";
    case TraceEvent::kSendGiven: return "SendGiven";
    case TraceEvent::kPacketGiven: return "PacketGiven";
    case TraceEvent::kReceiveGiven: return "ReceiveGiven";
    case TraceEvent::kMatchedReceiveGiven: return "MatchedReceiveGiven";
    case TraceEvent::kCancelGiven: return "CancelGiven";
    case TraceEvent::kSendTaken: return "SendTaken";
    case TraceEvent::kReceiveTaken: return "ReceiveTaken";
    case TraceEvent::kCancelTaken: return "CancelTaken";
    case TraceEvent::kNewsTaken: return "NewsTaken";
    case TraceEvent::kCommandPublished: return "CommandPublished";
    case TraceEvent::kCommandTaken: return "CommandTaken";
    case TraceEvent::kEventPublished: return "EventPublished";
    case TraceEvent::kCount: break;
  }
  return "Unknown";
}

std::uint64_t Trace::monotonic_ns() noexcept { return now_ns(CLOCK_MONOTONIC); }

Trace::Trace(PeerId self, std::uint32_t job_size, std::size_t capacity_events, Clock clock, TraceSide side)
    : self_(self),
      job_size_(job_size),
      mask_(capacity_for(capacity_events) - 1),
      clock_(clock),
      side_(side),
      start_(sample_clocks(clock)),
      records_(make_records(mask_ + 1)) {}

int Trace::write(const std::string& path) const noexcept {
  TraceFileHeader header{};
  std::memcpy(header.magic, kTraceMagic, sizeof header.magic);
  header.version = kTraceVersion;
  header.record_bytes = sizeof(TraceRecord);
  header.self = index_of(self_);
  header.job_size = job_size_;
  header.count = std::min(next_, mask_ + 1);
  header.first_index = next_ - header.count;
  header.at_start = start_;
  header.at_write = sample_clocks(clock_);
  header.process_id = static_cast<std::uint32_t>(getpid());
  header.clock =
      static_cast<std::uint16_t>(clock_ == monotonic_ns ? TraceClock::kMonotonic : TraceClock::kSimulated);
  header.side = static_cast<std::uint16_t>(side_);
  // A name that does not fit is cut; the header's last byte stays NUL.
  static_cast<void>(gethostname(header.host, sizeof header.host - 1));
  header.node_id = node_id(header.host);

  std::array<char, PATH_MAX> temporary{};
  const int length = std::snprintf(temporary.data(), temporary.size(), "%s.XXXXXX", path.c_str());
  if (length < 0 || static_cast<std::size_t>(length) >= temporary.size()) return ENAMETOOLONG;
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);  // 0600, and never an existing file.
  if (fd < 0) return errno;

  const std::size_t oldest = header.first_index & mask_;
  const std::size_t to_end = std::min<std::size_t>(header.count, mask_ + 1 - oldest);
  iovec parts[] = {{&header, sizeof header},
                   {records_.get() + oldest, to_end * sizeof(TraceRecord)},
                   {records_.get(), (header.count - to_end) * sizeof(TraceRecord)}};
  int error = write_all(fd, parts);
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(temporary.data(), path.c_str()) != 0) error = errno;
  if (error != 0) unlink(temporary.data());
  return error;
}

}  // namespace ch3_offload

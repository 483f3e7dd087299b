// Trace files, and all that ch3-offload-trace makes of them. Input: files one after another; each begins
// where their magic does.

#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include "fuzz/target.h"
#include "tools/trace_sample.h"
#include "trace_facts.h"
#include "trace_file.h"
#include "trace_job.h"
#include "trace_json.h"
#include "trace_show.h"
#include "trace_summary.h"

namespace ch3_offload::fuzz {
namespace trace_target {

void check_promises(const TraceFile& file) {
  const TraceFileHeader& header = file.header;
  require(header.self < header.job_size, "self is a rank of the job");
  require(std::memchr(header.host, 0, sizeof header.host) != nullptr, "the host's name ends");
  std::uint64_t earliest_ns = header.at_start.clock_ns;
  for (const TraceRecord& record : file.records) {
    require(record.peer < header.job_size, "peers are ranks of the job");
    require(record.event < static_cast<std::uint8_t>(TraceEvent::kCount), "events are known");
    require(is_of_client(static_cast<TraceEvent>(record.event)) == file.is_of_client(),
            "a side has its own events");
    require(!is_command(static_cast<TraceEvent>(record.event)) ||
                record.number <= header.at_write.clock_ns - record.time_ns,
            "commands returned");
    require(record.time_ns >= earliest_ns && record.time_ns <= header.at_write.clock_ns,
            "times do not decrease");
    earliest_ns = record.time_ns;
  }
}

void show(const TraceJob& job) {
  static std::FILE* const nowhere = std::fopen("/dev/null", "w");  // One for all runs.
  require(nowhere != nullptr && write_json(job, nowhere) == 0, "JSON is written");
  require(!render_list(job).empty() || job.messages().empty(), "messages are listed");
  static_cast<void>(slowest(job, 3));
  require(!render_summary(job, 3).empty(), "a job is summed up");
  for (const Command& command : job.commands()) {
    require(job.find_rank(command.rank) != nullptr, "a command has a rank");
    require(command.returned_ns >= command.given_ns, "a command takes time");
  }
  for (const Message& message : job.messages()) {
    require(job.find(message.name) == &message, "a message is found by its name");
    require(parse_message_name(to_string(message.name)) == message.name,
            "a name that is written out is read back");
    require(!render_tree(message, job, LineArt::kAscii).empty(), "a message is shown");
  }
}

void run(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view magic(kTraceMagic, sizeof kTraceMagic);
  std::vector<TraceFile> files;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(magic, begin + 1), text.size());
    auto file = parse_trace("file", bytes.subspan(begin, end - begin));
    if (file.ok()) {
      check_promises(file.value());
      files.push_back(std::move(file.value()));
    } else {
      require(file.error().message.starts_with("file: offset "), "a flaw has a place");
    }
    begin = end;
  }
  const auto merged = TraceJob::merge(files);
  if (merged.ok()) show(const_cast<Result<TraceJob>&>(merged).value());
}

std::vector<Bytes> seeds() {
  using enum TraceEvent;
  TraceSample sender(0, 2);
  sender.add(1, kPeerConnected, 1).add(10, kSendPosted, 1, 1, 64).add(11, kSendShort, 1, 1, 64);
  sender.add(20, kSendPosted, 1, 2, 9000).add(21, kSendQueued, 1, 2, 9000).add(22, kRtsSent, 1, 2, 9000);
  sender.add(50, kCtsArrived, 1, 2, 9000)
      .add(51, kWritePosted, 1, 2, 9000)
      .add(60, kWriteDone, 1, 2)
      .add(61, kSendDone, 1, 2);
  sender.add(70, kSendPosted, 1, 3, 100)
      .add(71, kOptimisticSent, 1, 3, 100)
      .add(99, kAckArrived, 1, 3)
      .add(100, kSendDone, 1, 3, 8);
  sender.add(110, kCancelRequested, 1).add(120, kCancelDecided, 1, 0, 1);
  TraceSample receiver(1, 2, 2, 1000);
  receiver.add(5, kReceivePosted, 1, 0, 7)
      .add(15, kMessageArrived, 0, 1, 64)
      .add(16, kMatched, 0, 1, 7)
      .add(17, kReceiveDone, 0, 1);
  receiver.add(30, kMessageArrived, 0, 2, 9000)
      .add(31, kUnexpected, 0, 2, 9000)
      .add(32, kProbe, 1, 0, 1)
      .add(40, kMatched, 0, 2, 7);
  receiver.add(41, kCtsSent, 0, 2, 9000)
      .add(62, kReceiveDone, 0, 2, 2)
      .add(80, kMessageArrived, 0, 3, 100)
      .add(81, kPayloadDropped, 0, 3, 100);
  receiver.add(90, kPacketArrived, 0, 0, 12).add(99, kPeerFailed, 0, 0, 8);
  TraceSample client(0, 2);
  client.by_client()
      .add(9, kSendGiven, 1, 3, 64, 0xA, 0)
      .add(19, kSendGiven, 1, 4, 9000, 0xA, 1)
      .add(30, kSleep, 0)
      .add(49, kWake, 0)
      .add(62, kSendTaken, 0, 0, 0, 0xA);
  client.add(63, kReceiveGiven, 0, 1, 7, 0xB, 1)
      .add(64, kPacketGiven, 1, 1, 40, 0, 1)
      .add(69, kSendGiven, 1, 5, 100, 0xC, 1)
      .add(80, kCancelGiven, 1, 2, 5, 0xC, 1)
      .add(90, kCancelTaken, 0, 0, 1, 0xC)
      .add(95, kMatchedReceiveGiven, 0, 1, 0, 0xD, 2)
      .add(96, kReceiveTaken, 0, 0, 5, 0xB)
      .add(99, kNewsTaken, 1, 0, 6);
  TraceSample engine(0, 2);
  engine.add(10, kSendPosted, 1, 1, 64, 0xA).add(20, kSendPosted, 1, 2, 9000, 0xA);
  engine.add(61, kSendDone, 1, 2, 0, 0xA)
      .add(63, kReceivePosted, 0, 0, 7, 0xB)
      .add(70, kSendPosted, 1, 3, 100, 0xC)
      .add(81, kCancelRequested, 1, 0, 5, 0xC)
      .add(82, kCancelDecided, 1, 0, 1, 0xC)
      .add(83, kReceiveCancelled, 0, 0, 0, 0xB);
  const Bytes from = sender.bytes();
  const Bytes to = receiver.bytes();
  Seed both, sides, all;
  both.bytes(from).bytes(to);
  sides.bytes(client.bytes()).bytes(engine.bytes());
  all.bytes(client.bytes()).bytes(engine.bytes()).bytes(to);
  return {from,           to,           both.done(), TraceSample(0, 1).bytes(), sender.lose(5).bytes(),
          client.bytes(), sides.done(), all.done()};
}

const Target kTarget("trace", run, seeds);

}  // namespace trace_target
}  // namespace ch3_offload::fuzz

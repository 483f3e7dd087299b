// A client of a target table that writes down what it is told, with an event queue of bounded size.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/targets/target_events.h"

namespace ch3_offload {

inline const char* name_of(TargetEventKind kind) {
  static constexpr const char* kNames[] = {"put",
                                           "put-overflow",
                                           "get",
                                           "get-overflow",
                                           "atomic",
                                           "atomic-overflow",
                                           "fetch-atomic",
                                           "fetch-atomic-overflow",
                                           "link",
                                           "auto-unlink",
                                           "auto-free",
                                           "search",
                                           "table-disabled",
                                           "send",
                                           "ack",
                                           "reply"};
  return kNames[static_cast<std::size_t>(kind)];
}

inline const char* name_of(TargetFailure failure) {
  static constexpr const char* kNames[] = {"",
                                           " undeliverable",
                                           " dropped",
                                           " table-disabled",
                                           " permission-violation",
                                           " operation-violation",
                                           " no-match",
                                           " lock-broken"};
  return kNames[static_cast<std::size_t>(failure)];
}

/// "put 7": an event and the cookie of its entry.
inline std::string short_form(const TargetEvent& event) {
  return std::string(name_of(event.kind)) + name_of(event.failure) + " " +
         std::to_string(reinterpret_cast<std::uintptr_t>(event.cookie));
}

/// All that an event says.
inline std::string long_form(const TargetEvent& event) {
  std::string text = short_form(event) + " table " + std::to_string(event.table) + " list " +
                     std::to_string(static_cast<int>(event.list)) + " start " +
                     std::to_string(reinterpret_cast<std::uintptr_t>(event.start));
  const TargetHeader& header = event.header;
  for (const std::uint64_t number :
       {event.length_bytes, number_of(header.key.bits), number_of(header.key.initiator), header.length_bytes,
        header.offset_bytes, header.header_data, std::uint64_t{static_cast<std::uint32_t>(header.user)},
        std::uint64_t{static_cast<std::uint8_t>(header.operation)}, std::uint64_t{header.atomic_operation},
        std::uint64_t{header.atomic_type}})
    text += " " + std::to_string(number);
  return text;
}

class RecordingListener final : public TargetListener {
 public:
  /// Events that the queue holds. They stay until taken().
  std::size_t capacity = SIZE_MAX;
  std::vector<TargetEvent> events;
  std::map<CounterId, std::pair<std::uint64_t, std::uint64_t>> counters;  ///< Success and failure.

  void on_event(const TargetEvent& event) noexcept override { events.push_back(event); }
  void on_count(CounterId counter, bool success, std::uint64_t amount) noexcept override {
    (success ? counters[counter].first : counters[counter].second) += amount;
  }
  bool reserve(std::size_t wanted) noexcept override {
    if (wanted > capacity || events.size() + reserved_ > capacity - wanted) return false;
    reserved_ += wanted;
    return true;
  }
  void unreserve(std::size_t wanted) noexcept override { reserved_ -= wanted; }

  std::size_t reserved() const { return reserved_; }

  /// The short forms of all events since the last call, "a, b".
  std::string taken() {
    std::string text;
    for (const TargetEvent& event : events) text += (text.empty() ? "" : ", ") + short_form(event);
    events.clear();
    return text;
  }

 private:
  std::size_t reserved_ = 0;
};

}  // namespace ch3_offload

// State machines as data: one table of transitions each, from which the code, the logs and
// docs/state-machines.md take states, events and names.

#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace ch3_offload {

template <class State, class Event>
struct Transition {
  State from;
  Event event;
  State to;
};

/// State and Event: enums that begin at 0.
template <class State, class Event, std::size_t kStates, std::size_t kEvents, std::size_t kTransitions>
class StateMachine {
 public:
  /// Names in the order of the enums. Two transitions of one state by one event do not compile.
  consteval StateMachine(const char* name, const std::array<const char*, kStates>& state_names,
                         const std::array<const char*, kEvents>& event_names,
                         const std::array<Transition<State, Event>, kTransitions>& transitions)
      : name_(name), state_names_(state_names), event_names_(event_names), transitions_(transitions) {
    for (auto& row : next_) row.fill(kNone);
    for (const auto& each : transitions) {
      std::uint8_t& cell = next_.at(index(each.from)).at(index(each.event));
      if (cell != kNone) throw "listed twice";
      cell = static_cast<std::uint8_t>(index(each.to));
    }
  }

  /// Goes on to the next state. Returns false, and leaves the state as it is, if the event is not listed:
  /// whoever caused it has broken the protocol.
  [[nodiscard]] bool step(State& state, Event event) const noexcept {
    const std::uint8_t to = next_[index(state)][index(event)];
    if (to == kNone) [[unlikely]]
      return false;
    state = static_cast<State>(to);
    return true;
  }
  /// For an event of our own making.
  void must_step(State& state, Event event) const noexcept {
    [[maybe_unused]] const bool listed = step(state, event);
    assert(listed);
  }

  constexpr const char* name() const noexcept { return name_; }
  constexpr const char* name_of(State state) const noexcept { return state_names_[index(state)]; }
  constexpr const char* name_of(Event event) const noexcept { return event_names_[index(event)]; }
  constexpr const auto& transitions() const noexcept { return transitions_; }
  constexpr const auto& state_names() const noexcept { return state_names_; }

 private:
  static constexpr std::uint8_t kNone = UINT8_MAX;
  template <class Enum>
  static constexpr std::size_t index(Enum value) noexcept {
    return static_cast<std::size_t>(value);
  }

  const char* name_;
  std::array<const char*, kStates> state_names_;
  std::array<const char*, kEvents> event_names_;
  std::array<Transition<State, Event>, kTransitions> transitions_;
  std::array<std::array<std::uint8_t, kEvents>, kStates> next_{};
};

}  // namespace ch3_offload

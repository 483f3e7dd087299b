// portals4.h: counting events.

#include <cstdint>

#include "portals/call.h"

using namespace ch3_offload;
using namespace ch3_offload::portals;

namespace {

bool has_reached(const ptl_ct_event_t& value, ptl_size_t test) noexcept {
  // The sum may not fit.
  return value.failure >= test || value.success >= test - value.failure;
}

/// For Library::wait(): any of some counting events has reached its test.
class AnyCount {
 public:
  AnyCount(const CountingEvents& counters, const ptl_handle_ct_t* handles, const ptl_size_t* tests,
           unsigned int size, ptl_ct_event_t& event, unsigned int& which) noexcept
      : counters_(counters), handles_(handles), tests_(tests), size_(size), event_(event), which_(which) {}

  bool are_live() const noexcept {
    for (unsigned int i = 0; i < size_; ++i)
      if (!counters_.is_live(handles_[i])) return false;
    return true;
  }

  bool may_be_met() const noexcept {
    for (unsigned int i = 0; i < size_; ++i) {
      ptl_ct_event_t value;
      if (!counters_.read(handles_[i], value) || has_reached(value, tests_[i])) return true;
    }
    return false;
  }

  /// May be called without the lock, too.
  std::optional<int> take() noexcept {
    for (unsigned int i = 0; i < size_; ++i) {
      ptl_ct_event_t value;
      if (!counters_.read(handles_[i], value)) return PTL_INTERRUPTED;
      if (!has_reached(value, tests_[i])) continue;
      event_ = value;
      which_ = i;
      return PTL_OK;
    }
    return std::nullopt;
  }

 private:
  const CountingEvents& counters_;
  const ptl_handle_ct_t* handles_;
  const ptl_size_t* tests_;
  const unsigned int size_;
  ptl_ct_event_t& event_;
  unsigned int& which_;
};

int poll(const ptl_handle_ct_t* handles, const ptl_size_t* tests, unsigned int size, ptl_time_t timeout,
         ptl_ct_event_t* event, unsigned int* which) noexcept {
  Library& library = Library::instance();
  // Before the handles are looked at: after PtlAbort() the program may free them.
  if (library.is_aborted()) return PTL_ABORTED;
  Interface* const interface = library.interface_at(interface_of(handles[0]));
  if (interface == nullptr) return PTL_ARG_INVALID;
  AnyCount any(interface->counters, handles, tests, size, *event, *which);
  if (!any.are_live()) return PTL_ARG_INVALID;
  if (const std::optional<int> met = any.take()) return *met;
  Library::Lock lock = library.lock();
  return library.wait(lock, any, timeout, PTL_CT_NONE_REACHED);
}

/// Calls `body(library, interface, id)` with the counter of a handle.
template <class Body>
int with_counter(ptl_handle_ct_t handle, Body body) noexcept {
  return with_interface_of(handle, [&](Library& library, Library::Lock&, Interface& interface) -> int {
    const CounterId id = interface.counters.id_of(handle);
    return id == kNoCounter ? PTL_ARG_INVALID : body(library, interface, id);
  });
}

int change(ptl_handle_ct_t handle, TargetCountChange::Kind kind, const ptl_ct_event_t& amount) noexcept {
  return with_counter(handle, [&](Library& library, Interface& interface, CounterId id) {
    library.port().change_counter(interface.number(), {kind, id, {amount.success, amount.failure}});
    return PTL_OK;
  });
}

bool is_increment(const ptl_ct_event_t& amount) noexcept {
  return amount.success == 0 || amount.failure == 0;
}

int trigger(ptl_handle_ct_t handle, TargetCountChange::Kind kind, const ptl_ct_event_t& amount,
            ptl_handle_ct_t trigger_handle, ptl_size_t threshold) noexcept {
  return with_counter(handle, [&](Library& library, Interface& interface, CounterId id) {
    const CounterId counter = interface.counters.id_of(trigger_handle);
    if (counter == kNoCounter) return static_cast<int>(PTL_ARG_INVALID);
    return code_of(library.port().trigger({counter, threshold}, interface.number(),
                                          {kind, id, {amount.success, amount.failure}}));
  });
}

}  // namespace

int PtlCTAlloc(ptl_handle_ni_t ni_handle, ptl_handle_ct_t* ct_handle) {
  return with_interface(ni_handle, [=](Library& library, Library::Lock&, Interface& interface) -> int {
    if (ct_handle == nullptr) return PTL_ARG_INVALID;
    if (interface.counters.live() >= static_cast<std::size_t>(interface.limits().max_cts))
      return PTL_NO_SPACE;
    const CounterId id = library.port().make_counter(interface.number());
    if (id == kNoCounter) return PTL_NO_SPACE;
    *ct_handle = interface.counters.add(id);
    return PTL_OK;
  });
}

int PtlCTFree(ptl_handle_ct_t ct_handle) {
  return with_counter(ct_handle, [=](Library& library, Interface& interface, CounterId id) {
    interface.counters.remove(ct_handle);
    library.port().free_counter(interface.number(), id);
    library.wake();
    return PTL_OK;
  });
}

int PtlCTCancelTriggered(ptl_handle_ct_t ct_handle) {
  return with_counter(ct_handle, [](Library& library, Interface& interface, CounterId id) {
    library.port().cancel_triggered(interface.number(), id);
    return PTL_OK;
  });
}

int PtlCTGet(ptl_handle_ct_t ct_handle, ptl_ct_event_t* event) {
  Library& library = Library::instance();
  if (!library.is_ready()) return PTL_NO_INIT;
  const Interface* const interface = library.interface_at(interface_of(ct_handle));
  if (interface == nullptr || event == nullptr) return PTL_ARG_INVALID;
  // A processor that works alone may end: who only polls must hear of it, too.
  constexpr std::uint32_t kCallsBeforeLook = 4096;
  static thread_local std::uint32_t calls = 0;
  if (!library.works_alone() || ++calls % kCallsBeforeLook == 0) {
    const Library::Lock lock = library.lock();
    if (interface->is_open()) library.work();
  }
  return interface->counters.read(ct_handle, *event) ? PTL_OK : PTL_ARG_INVALID;
}

int PtlCTWait(ptl_handle_ct_t ct_handle, ptl_size_t test, ptl_ct_event_t* event) {
  if (!Library::instance().is_ready()) return PTL_NO_INIT;
  if (event == nullptr) return PTL_ARG_INVALID;
  unsigned int which;
  return poll(&ct_handle, &test, 1, PTL_TIME_FOREVER, event, &which);
}

int PtlCTPoll(const ptl_handle_ct_t* ct_handles, const ptl_size_t* tests, unsigned int size,
              ptl_time_t timeout, ptl_ct_event_t* event, unsigned int* which) {
  if (!Library::instance().is_ready()) return PTL_NO_INIT;
  if (ct_handles == nullptr || tests == nullptr || size == 0 || event == nullptr || which == nullptr)
    return PTL_ARG_INVALID;
  return poll(ct_handles, tests, size, timeout, event, which);
}

int PtlCTSet(ptl_handle_ct_t ct_handle, ptl_ct_event_t new_ct) {
  return change(ct_handle, TargetCountChange::Kind::kSet, new_ct);
}

int PtlCTInc(ptl_handle_ct_t ct_handle, ptl_ct_event_t increment) {
  if (!Library::instance().is_ready()) return PTL_NO_INIT;
  if (!is_increment(increment)) return PTL_ARG_INVALID;
  return change(ct_handle, TargetCountChange::Kind::kAdd, increment);
}

int PtlTriggeredCTInc(ptl_handle_ct_t ct_handle, ptl_ct_event_t increment, ptl_handle_ct_t trig_ct_handle,
                      ptl_size_t threshold) {
  if (!Library::instance().is_ready()) return PTL_NO_INIT;
  if (!is_increment(increment)) return PTL_ARG_INVALID;
  return trigger(ct_handle, TargetCountChange::Kind::kAdd, increment, trig_ct_handle, threshold);
}

int PtlTriggeredCTSet(ptl_handle_ct_t ct_handle, ptl_ct_event_t new_ct, ptl_handle_ct_t trig_ct_handle,
                      ptl_size_t threshold) {
  return trigger(ct_handle, TargetCountChange::Kind::kSet, new_ct, trig_ct_handle, threshold);
}

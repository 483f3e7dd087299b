// portals4.h: event queues.

#include <array>
#include <span>

#include "portals/call.h"
#include "portals/translation.h"

using namespace ch3_offload;
using namespace ch3_offload::portals;

namespace {

/// Takes the oldest event. Nothing: there is none.
std::optional<int> take(const Interface& interface, EventQueue& queue, ptl_event_t& out) noexcept {
  TargetEvent event;
  bool lost = false;
  if (!queue.take(event, lost)) return std::nullopt;
  out = event_of(event, interface.is_logical());
  return lost ? PTL_EQ_DROPPED : PTL_OK;
}

/// For Library::wait(): an event in any of some queues.
class AnyEvent {
 public:
  /// Throws std::bad_alloc.
  AnyEvent(const Interface& interface, std::size_t size, ptl_event_t& event, unsigned int& which)
      : interface_(interface), event_(event), which_(which) {
    if (size > few_.size()) many_.resize(size);
    queues_ = size > few_.size() ? std::span(many_) : std::span(few_).first(size);
  }

  /// Returns false if one of them is none of the interface's.
  bool find(Interface& interface, const ptl_handle_eq_t* handles) noexcept {
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      queues_[i] = interface.queues.share(handles[i]);
      if (queues_[i] == nullptr) return false;
    }
    return true;
  }

  bool may_be_met() const noexcept {
    for (const auto& queue : queues_)
      if (queue->may_have_event() || queue->is_gone()) return true;
    return false;
  }

  std::optional<int> take() noexcept {
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      const std::size_t index = (first_ + i) % queues_.size();
      if (queues_[index]->is_gone()) return PTL_INTERRUPTED;
      if (const std::optional<int> taken = ::take(interface_, *queues_[index], event_)) {
        which_ = static_cast<unsigned int>(index);
        return taken;
      }
    }
    return std::nullopt;
  }

  /// Where the search begins, so that no queue is always the last one.
  void begin_at(std::size_t first) noexcept { first_ = first % queues_.size(); }

 private:
  const Interface& interface_;
  ptl_event_t& event_;
  unsigned int& which_;
  std::array<std::shared_ptr<EventQueue>, 4> few_;
  std::vector<std::shared_ptr<EventQueue>> many_;
  std::span<std::shared_ptr<EventQueue>> queues_;
  std::size_t first_ = 0;
};

int poll(const ptl_handle_eq_t* handles, unsigned int size, ptl_time_t timeout, ptl_event_t* event,
         unsigned int* which) noexcept {
  // Before the handles are looked at: after PtlAbort() the program may free them.
  if (Library::instance().is_aborted()) return PTL_ABORTED;
  return with_interface_of(handles[0],
                           [&](Library& library, Library::Lock& lock, Interface& interface) -> int {
                             AnyEvent any(interface, size, *event, *which);
                             if (!any.find(interface, handles)) return PTL_ARG_INVALID;
                             any.begin_at(library.next_turn());
                             return library.wait(lock, any, timeout, PTL_EQ_EMPTY);
                           });
}

}  // namespace

int PtlEQAlloc(ptl_handle_ni_t ni_handle, ptl_size_t count, ptl_handle_eq_t* eq_handle) {
  return with_interface(ni_handle, [&](Library& library, Library::Lock&, Interface& interface) -> int {
    constexpr ptl_size_t kMostEvents = 1U << 24;  // 2 GiB.
    if (eq_handle == nullptr) return PTL_ARG_INVALID;
    if (count > kMostEvents ||
        interface.queues.live() >= static_cast<std::size_t>(interface.limits().max_eqs))
      return PTL_NO_SPACE;
    const auto queue =
        std::make_shared<EventQueue>(library.port().told_memory(), count, interface.most_tables());
    const ptl_handle_eq_t handle = interface.queues.add(queue);
    queue->id = library.port().make_queue(interface.number(), queue->ring());
    if (queue->id == kNoQueue) {
      interface.queues.remove(handle);
      return PTL_NO_SPACE;
    }
    *eq_handle = handle;
    return PTL_OK;
  });
}

int PtlEQFree(ptl_handle_eq_t eq_handle) {
  return with_interface_of(eq_handle, [=](Library& library, Library::Lock&, Interface& interface) -> int {
    EventQueue* const queue = interface.queues.find(eq_handle);
    if (queue == nullptr) return PTL_ARG_INVALID;
    library.port().free_queue(interface.number(), queue->id);
    queue->go();
    interface.queues.remove(eq_handle);
    library.wake();
    return PTL_OK;
  });
}

int PtlEQGet(ptl_handle_eq_t eq_handle, ptl_event_t* event) {
  return with_interface_of(eq_handle, [=](Library& library, Library::Lock&, Interface& interface) -> int {
    EventQueue* const queue = interface.queues.find(eq_handle);
    if (queue == nullptr || event == nullptr) return PTL_ARG_INVALID;
    if (const std::optional<int> taken = take(interface, *queue, *event)) return *taken;
    library.work();
    return take(interface, *queue, *event).value_or(PTL_EQ_EMPTY);
  });
}

int PtlEQWait(ptl_handle_eq_t eq_handle, ptl_event_t* event) {
  if (!Library::instance().is_ready()) return PTL_NO_INIT;
  if (event == nullptr) return PTL_ARG_INVALID;
  unsigned int which;
  return poll(&eq_handle, 1, PTL_TIME_FOREVER, event, &which);
}

int PtlEQPoll(const ptl_handle_eq_t* eq_handles, unsigned int size, ptl_time_t timeout, ptl_event_t* event,
              unsigned int* which) {
  if (!Library::instance().is_ready()) return PTL_NO_INIT;
  if (eq_handles == nullptr || size == 0 || event == nullptr || which == nullptr) return PTL_ARG_INVALID;
  return poll(eq_handles, size, timeout, event, which);
}

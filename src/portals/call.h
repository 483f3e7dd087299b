// What each function of portals4.h does first and last: is the library ready, is that a handle of an open
// interface, the lock, and no exception across.
//
// Threads: any.

#pragma once

#include <new>
#include <utility>

#include "portals/library.h"

namespace ch3_offload::portals {

/// Calls `body(library, lock, interface)` under the lock, and returns what it returns. PTL_NO_INIT.
/// PTL_ARG_INVALID: `interface` is null. PTL_NO_SPACE: no memory.
template <class Find, class Body>
int call(Find find, Body body) noexcept {
  Library& library = Library::instance();
  if (!library.is_ready()) return PTL_NO_INIT;
  Library::Lock lock = library.lock();
  Interface* const interface = find(library);
  if (interface == nullptr) return PTL_ARG_INVALID;
  int code;
  try {
    code = body(library, lock, *interface);
  } catch (const std::bad_alloc&) {
    return PTL_NO_SPACE;
  }
  // What the call has done by itself: a processor that works by itself tells of what it does.
  library.changed();
  return code;
}

/// With the interface of that handle.
template <class Body>
int with_interface(ptl_handle_ni_t handle, Body body) noexcept {
  return call([handle](Library& library) { return library.find_interface(handle); }, std::move(body));
}

/// With the interface of an object, which may be stale.
template <class Body>
int with_interface_of(ptl_handle_any_t object, Body body) noexcept {
  return call([object](Library& library) { return library.interface_with(object); }, std::move(body));
}

/// What a call of the port came to.
inline int code_of(Status status) noexcept {
  switch (status) {
    case Status::kOk: return PTL_OK;
    case Status::kAgain:
    case Status::kNoMemory: return PTL_NO_SPACE;
    case Status::kUnsupported: return PTL_ARG_INVALID;
    default: return PTL_FAIL;
  }
}

/// The queue of a handle, of that interface. Returns false if there is none; PTL_EQ_NONE is kNoQueue.
inline bool find_queue(Interface& interface, ptl_handle_eq_t handle, QueueId& id) noexcept {
  id = kNoQueue;
  if (handle == PTL_EQ_NONE) return true;
  const EventQueue* const queue = interface.queues.find(handle);
  if (queue == nullptr) return false;
  id = queue->id;
  return true;
}

/// The same for a counting event, and PTL_CT_NONE.
inline bool find_counter(const Interface& interface, ptl_handle_ct_t handle, CounterId& id) noexcept {
  id = kNoCounter;
  if (handle == PTL_CT_NONE) return true;
  id = interface.counters.id_of(handle);
  return id != kNoCounter;
}

}  // namespace ch3_offload::portals

// ch3_offload_am.h: endpoints, messages and remote memory. Checks arguments and converts types. No logic.

#include <sched.h>

#include <climits>
#include <cstring>
#include <memory>
#include <new>

#include "active_messages/endpoint.h"

using namespace ch3_offload::active_messages;

namespace {

Endpoint& of(ch3_offload_am_t* am) noexcept { return *reinterpret_cast<Endpoint*>(am); }
Peer& of(ch3_offload_am_peer_t* peer) noexcept { return *reinterpret_cast<Peer*>(peer); }
Incoming& of(ch3_offload_am_message_t* message) noexcept { return *reinterpret_cast<Incoming*>(message); }
Region& of(ch3_offload_am_region_t* region) noexcept { return *reinterpret_cast<Region*>(region); }
Remote& of(ch3_offload_am_remote_t* remote) noexcept { return *reinterpret_cast<Remote*>(remote); }

/// Calls what may throw for want of memory.
template <class Body>
int call(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return CH3_OFFLOAD_AM_NO_MEMORY;
  }
}

/// As call(); what is found is `result`, of the type that the program knows.
template <class Found, class Result, class Find>
int find(Result** result, Find search) noexcept {
  Found* found = nullptr;
  const int code = call([&] { return search(found); });
  if (code == CH3_OFFLOAD_AM_OK) *result = reinterpret_cast<Result*>(found);
  return code;
}

/// Null arguments are none. Returns false if they cannot be sent.
bool contents(const ch3_offload_am_arguments_t* arguments, std::span<const unsigned char>& bytes) noexcept {
  if (arguments == nullptr) return true;
  if (arguments->code != CH3_OFFLOAD_AM_OK || arguments->length > sizeof arguments->bytes) return false;
  bytes = {arguments->bytes, arguments->length};
  return true;
}

}  // namespace

int ch3_offload_am_open(ch3_offload_am_failed_t* failed, void* context, ch3_offload_am_t** am) {
  if (am == nullptr) return CH3_OFFLOAD_AM_INVALID;
  std::unique_ptr<Endpoint> endpoint(new (std::nothrow) Endpoint(failed, context));
  if (endpoint == nullptr) return CH3_OFFLOAD_AM_NO_MEMORY;
  const int code = call([&] { return endpoint->open(); });
  if (code != CH3_OFFLOAD_AM_OK) {
    while (endpoint->close() == CH3_OFFLOAD_AM_AGAIN) sched_yield();
    return code;
  }
  *am = reinterpret_cast<ch3_offload_am_t*>(endpoint.release());
  return CH3_OFFLOAD_AM_OK;
}

int ch3_offload_am_close(ch3_offload_am_t* am) {
  if (am == nullptr) return CH3_OFFLOAD_AM_INVALID;
  const int code = of(am).close();
  if (code == CH3_OFFLOAD_AM_OK) delete &of(am);
  return code;
}

int ch3_offload_am_address(const ch3_offload_am_t* am, ch3_offload_am_address_t* address) {
  if (am == nullptr || address == nullptr) return CH3_OFFLOAD_AM_INVALID;
  *address = write(reinterpret_cast<const Endpoint*>(am)->address());
  return CH3_OFFLOAD_AM_OK;
}

int ch3_offload_am_register(ch3_offload_am_t* am, const char* name, ch3_offload_am_function_t* function,
                            void* context) {
  if (am == nullptr || name == nullptr || function == nullptr) return CH3_OFFLOAD_AM_INVALID;
  return call([&] { return of(am).add_function(name, function, context); });
}

uint64_t ch3_offload_am_number(const char* name) { return name == nullptr ? 0 : number_of(name); }

int ch3_offload_am_find_peer(ch3_offload_am_t* am, const ch3_offload_am_address_t* address,
                             ch3_offload_am_peer_t** peer) {
  if (am == nullptr || address == nullptr || peer == nullptr) return CH3_OFFLOAD_AM_INVALID;
  return find<Peer>(peer, [&](Peer*& found) { return of(am).find_peer(read(*address), found); });
}

int ch3_offload_am_peer_address(const ch3_offload_am_peer_t* peer, ch3_offload_am_address_t* address) {
  if (peer == nullptr || address == nullptr) return CH3_OFFLOAD_AM_INVALID;
  *address = write(reinterpret_cast<const Peer*>(peer)->address);
  return CH3_OFFLOAD_AM_OK;
}

int ch3_offload_am_send(ch3_offload_am_peer_t* peer, const char* name,
                        const ch3_offload_am_arguments_t* arguments) {
  std::span<const unsigned char> bytes;
  if (peer == nullptr || name == nullptr || *name == '\0' || !contents(arguments, bytes))
    return CH3_OFFLOAD_AM_INVALID;
  return of(peer).endpoint.send(of(peer), Channel::kRequests, number_of(name), bytes);
}

int ch3_offload_am_reply(ch3_offload_am_message_t* message, const char* name,
                         const ch3_offload_am_arguments_t* arguments) {
  std::span<const unsigned char> bytes;
  if (message == nullptr || name == nullptr || *name == '\0' || !contents(arguments, bytes))
    return CH3_OFFLOAD_AM_INVALID;
  return of(message).peer->endpoint.reply(of(message), number_of(name), bytes);
}

ch3_offload_am_peer_t* ch3_offload_am_sender(const ch3_offload_am_message_t* message) {
  if (message == nullptr) return nullptr;
  Peer* const peer = reinterpret_cast<const Incoming*>(message)->peer;
  peer->endpoint.hold(*peer);
  return reinterpret_cast<ch3_offload_am_peer_t*>(peer);
}

void ch3_offload_am_release(ch3_offload_am_peer_t* peer) {
  if (peer != nullptr) of(peer).endpoint.release(of(peer));
}

int ch3_offload_am_poll(ch3_offload_am_t* am, int timeout_ms) {
  return am == nullptr ? CH3_OFFLOAD_AM_INVALID : of(am).poll(timeout_ms);
}

int ch3_offload_am_flush(ch3_offload_am_t* am, int timeout_ms) {
  return am == nullptr ? CH3_OFFLOAD_AM_INVALID : of(am).flush(timeout_ms);
}

int ch3_offload_am_check(ch3_offload_am_peer_t* peer) {
  return peer == nullptr ? CH3_OFFLOAD_AM_INVALID : of(peer).endpoint.check(of(peer));
}

int ch3_offload_am_allocate(ch3_offload_am_t* am, size_t length, ch3_offload_am_region_t** region) {
  if (am == nullptr || region == nullptr) return CH3_OFFLOAD_AM_INVALID;
  return find<Region>(region, [&](Region*& found) { return of(am).regions().allocate(length, found); });
}

int ch3_offload_am_expose(ch3_offload_am_t* am, void* start, size_t length,
                          ch3_offload_am_region_t** region) {
  if (am == nullptr || start == nullptr || region == nullptr) return CH3_OFFLOAD_AM_INVALID;
  return find<Region>(region, [&](Region*& found) { return of(am).regions().expose(start, length, found); });
}

void* ch3_offload_am_memory(const ch3_offload_am_region_t* region) {
  return region == nullptr ? nullptr : reinterpret_cast<const Region*>(region)->start;
}

int ch3_offload_am_name(const ch3_offload_am_region_t* region, ch3_offload_am_name_t* name) {
  if (region == nullptr || name == nullptr) return CH3_OFFLOAD_AM_INVALID;
  *name = write(reinterpret_cast<const Region*>(region)->name);
  return CH3_OFFLOAD_AM_OK;
}

int ch3_offload_am_free(ch3_offload_am_region_t* region) {
  return region == nullptr ? CH3_OFFLOAD_AM_INVALID : of(region).regions->free(of(region));
}

int ch3_offload_am_attach(ch3_offload_am_t* am, const ch3_offload_am_name_t* name,
                          ch3_offload_am_remote_t** remote) {
  if (am == nullptr || name == nullptr || remote == nullptr) return CH3_OFFLOAD_AM_INVALID;
  const std::optional<RegionName> its = read(*name);
  if (!its) return CH3_OFFLOAD_AM_INVALID;
  return find<Remote>(remote, [&](Remote*& found) { return of(am).regions().attach(*its, found); });
}

void* ch3_offload_am_mapped(const ch3_offload_am_remote_t* remote) {
  return remote == nullptr ? nullptr : reinterpret_cast<const Remote*>(remote)->memory();
}

size_t ch3_offload_am_length(const ch3_offload_am_remote_t* remote) {
  return remote == nullptr ? 0 : reinterpret_cast<const Remote*>(remote)->name.length_bytes;
}

int ch3_offload_am_detach(ch3_offload_am_remote_t* remote) {
  return remote == nullptr ? CH3_OFFLOAD_AM_INVALID : of(remote).regions->detach(of(remote));
}

int ch3_offload_am_put(ch3_offload_am_remote_t* remote, size_t offset, const void* from, size_t length,
                       ch3_offload_am_done_t* done, void* context) {
  if (remote == nullptr || (from == nullptr && length > 0)) return CH3_OFFLOAD_AM_INVALID;
  return of(remote).regions->put(of(remote), offset, from, length, done, context);
}

int ch3_offload_am_get(ch3_offload_am_remote_t* remote, size_t offset, void* to, size_t length,
                       ch3_offload_am_done_t* done, void* context) {
  if (remote == nullptr || (to == nullptr && length > 0)) return CH3_OFFLOAD_AM_INVALID;
  return of(remote).regions->get(of(remote), offset, to, length, done, context);
}

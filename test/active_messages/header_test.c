/* ch3_offload_am.h in C99. */

#include "active_messages/ch3_offload_am.h"

typedef char codes[CH3_OFFLOAD_AM_FAIL == 9 ? 1 : -1];
typedef char addresses[sizeof(ch3_offload_am_address_t) == 24 ? 1 : -1];
typedef char names[sizeof(ch3_offload_am_name_t) == 40 ? 1 : -1];

int am_header_test(ch3_offload_am_peer_t *peer);
int am_header_test(ch3_offload_am_peer_t *peer)
{
    ch3_offload_am_arguments_t arguments;
    ch3_offload_am_begin(&arguments);
    ch3_offload_am_append_u32(&arguments, 1);
    return ch3_offload_am_send(peer, "function", &arguments);
}

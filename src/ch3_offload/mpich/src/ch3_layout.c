/*
 * The ch3:offload channel: MPI buffers as the engine sees them.
 *
 * A contiguous buffer is an address and a length. Anything else is packed and unpacked by byte range, in
 * ranges that the engine chooses and that may cut a basic element, while MPIR_Typerep_pack and _unpack move
 * whole basic elements only. The bytes of the element that a range has cut are kept in the request (edge)
 * until the next range completes it. Ranges that do not follow each other are served through an iovec: correct for
 * every range, but slow.
 */

#include "mpidi_ch3_impl.h"

#define IOV_BATCH 64

static void pack(const void *context, size_t offset_bytes, void *destination, size_t length_bytes);
static void unpack(void *context, size_t offset_bytes, const void *source, size_t length_bytes);

const ch3_offload_layout_t MPIDI_CH3I_layout = { pack, unpack };

void MPIDI_CH3I_Payload(const void *buf, MPI_Aint count, MPI_Datatype datatype,
                        ch3_offload_payload_t * payload, int *needs_request)
{
    MPIR_Datatype *dt_ptr;
    MPI_Aint true_lb;
    intptr_t data_sz;
    int is_contiguous;

    MPIDI_Datatype_get_info(count, datatype, is_contiguous, data_sz, dt_ptr, true_lb);
    MPL_UNREFERENCED_ARG(dt_ptr);
    payload->length_bytes = data_sz;
    if (is_contiguous || data_sz == 0) {
        payload->address = data_sz == 0 ? NULL : MPIR_get_contig_ptr(buf, true_lb);
        payload->layout = NULL;
        *needs_request = FALSE;
    } else {
        payload->address = NULL;
        payload->layout = &MPIDI_CH3I_layout;
        *needs_request = TRUE;
    }
}

void MPIDI_CH3I_Hold_datatype(MPIR_Request * req)
{
    if (req->dev.datatype_ptr == NULL && !HANDLE_IS_BUILTIN(req->dev.datatype)) {
        MPIR_Datatype_get_ptr(req->dev.datatype, req->dev.datatype_ptr);
        MPIR_Datatype_ptr_add_ref(req->dev.datatype_ptr);
    }
}

/* Copies a byte range between the user's buffer and contiguous memory, whatever it cuts. */
static void copy_by_iov(MPIR_Request * req, intptr_t offset, char *memory, intptr_t length, int to_user)
{
    while (length > 0) {
        struct iovec iov[IOV_BATCH];
        MPI_Aint iov_count, iov_bytes;
        MPI_Aint i;

        MPIR_Typerep_to_iov(req->dev.user_buf, req->dev.user_count, req->dev.datatype, offset, iov,
                            IOV_BATCH, length, &iov_count, &iov_bytes);
        if (iov_bytes <= 0)
            return;
        for (i = 0; i < iov_count; i++) {
            if (to_user)
                MPIR_Memcpy(iov[i].iov_base, memory, iov[i].iov_len);
            else
                MPIR_Memcpy(memory, iov[i].iov_base, iov[i].iov_len);
            memory += iov[i].iov_len;
        }
        offset += iov_bytes;
        length -= iov_bytes;
    }
}

static void pack(const void *context, size_t offset_bytes, void *destination, size_t length_bytes)
{
    MPIR_Request *req = (MPIR_Request *) context;
    intptr_t offset = offset_bytes;
    intptr_t length = length_bytes;
    char *out = destination;
    MPI_Aint packed;

    if (offset != req->ch.layout_next && offset != 0) {
        copy_by_iov(req, offset, out, length, FALSE);
        return;
    }
    if (offset == 0)
        req->ch.edge_bytes = 0;
    req->ch.layout_next = offset + length;

    if (req->ch.edge_bytes > 0) {
        intptr_t used = offset - req->ch.edge_offset;
        intptr_t n = MPL_MIN(length, req->ch.edge_bytes - used);
        MPIR_Memcpy(out, req->ch.edge + used, n);
        out += n;
        offset += n;
        length -= n;
        if (used + n < req->ch.edge_bytes)
            return;
        req->ch.edge_bytes = 0;
    }
    if (length == 0)
        return;

    MPIR_Typerep_pack(req->dev.user_buf, req->dev.user_count, req->dev.datatype, offset, out, length,
                      &packed);
    out += packed;
    offset += packed;
    length -= packed;
    if (length > 0) {
        /* The range ends inside a basic element. */
        MPIR_Typerep_pack(req->dev.user_buf, req->dev.user_count, req->dev.datatype, offset,
                          req->ch.edge, MPIDI_CH3I_MAX_BASIC_BYTES, &packed);
        MPIR_Assert(packed > length);
        MPIR_Memcpy(out, req->ch.edge, length);
        req->ch.edge_offset = offset;
        req->ch.edge_bytes = packed;
    }
}

static void unpack(void *context, size_t offset_bytes, const void *source, size_t length_bytes)
{
    MPIR_Request *req = context;
    intptr_t offset = offset_bytes;
    intptr_t length = length_bytes;
    const char *in = source;
    MPI_Aint unpacked;

    if (offset != req->ch.layout_next && offset != 0) {
        copy_by_iov(req, offset, (char *) in, length, TRUE);
        return;
    }
    if (offset == 0)
        req->ch.edge_bytes = 0;
    req->ch.layout_next = offset + length;

    if (req->ch.edge_bytes > 0) {
        /* Complete the element that the last range has begun (and whole ones that fit behind it). */
        intptr_t n = MPL_MIN(length, MPIDI_CH3I_MAX_BASIC_BYTES - req->ch.edge_bytes);
        MPIR_Memcpy(req->ch.edge + req->ch.edge_bytes, in, n);
        MPIR_Typerep_unpack(req->ch.edge, req->ch.edge_bytes + n, req->dev.user_buf,
                            req->dev.user_count, req->dev.datatype, req->ch.edge_offset, &unpacked);
        if (unpacked == 0) {
            req->ch.edge_bytes += n;
            return;
        }
        n = unpacked - req->ch.edge_bytes;
        MPIR_Assert(n > 0);
        in += n;
        offset += n;
        length -= n;
        req->ch.edge_bytes = 0;
    }
    if (length == 0)
        return;

    MPIR_Typerep_unpack(in, length, req->dev.user_buf, req->dev.user_count, req->dev.datatype, offset,
                        &unpacked);
    in += unpacked;
    offset += unpacked;
    length -= unpacked;
    if (length > 0) {
        MPIR_Assert(length < MPIDI_CH3I_MAX_BASIC_BYTES);
        MPIR_Memcpy(req->ch.edge, in, length);
        req->ch.edge_offset = offset;
        req->ch.edge_bytes = length;
    }
}

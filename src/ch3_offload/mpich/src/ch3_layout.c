/*
 * The ch3:offload channel: MPI buffers as the engine sees them.
 *
 * A contiguous buffer is an address and a length. A datatype that flattens into at most MOST_PIECES runs of
 * bytes is a list of them, made at its first use and kept until the datatype is freed. The engine moves such
 * payloads by itself.
 *
 * Anything else is packed and unpacked by byte range, in ranges that the engine chooses and that may cut a
 * basic element, while MPIR_Typerep_pack and _unpack move whole basic elements only. The bytes of the element
 * that a range has cut are kept in the request (edge) until the next range completes it. Ranges that do not
 * follow each other are served through an iovec: correct for every range, but slow.
 *
 * pack and unpack may be called by any thread and need no lock of MPICH, because nothing that they touch
 * changes while the request is pending ("Packing without a lock" in ch3:offload's ARCHITECTURE.md):
 *   - the request, with its edge: one range at a time; the request is the engine's until its event is taken
 *   - the datatype and its dataloop: the request holds a reference, and commit is over
 *   - MPIR_Segment: allocated and freed by each call, by malloc
 *   - the table of datatypes: its blocks never move
 */

#include "mpidi_ch3_impl.h"

#define IOV_BATCH 64
#define MOST_PIECES 64

static void pack(const void *context, size_t offset_bytes, void *destination, size_t length_bytes);
static void unpack(void *context, size_t offset_bytes, const void *source, size_t length_bytes);

static const ch3_offload_layout_t packed_layout = {
    .kind = CH3_OFFLOAD_PACKED,
    .pack = pack,
    .unpack = unpack
};

/* The layouts of the datatypes that were used, at the index that is in the datatype: CH3 gives it one int for
 * the device (dev.foo). It is not set before the first use, so an index counts only if its layout is that
 * datatype's. */
typedef struct {
    const MPIR_Datatype *owner; /* NULL: the index is free */
    const ch3_offload_layout_t *layout; /* &packed_layout: it has too many pieces */
} used_layout_t;
static used_layout_t *layouts = NULL;
static int layout_count = 0;    /* indices so far, used or free: the array's length */
static int layouts_used = 0;
static int free_from = 0;       /* no index below it is free */

static used_layout_t *find_layout(const MPIR_Datatype * type)
{
    const int index = type->dev.foo;

    return index >= 0 && index < layout_count && layouts[index].owner == type ? &layouts[index] : NULL;
}

/* Returns the index of a free place, or -1 without memory. */
static int free_index(void)
{
    int index;

    for (index = free_from; index < layout_count && layouts[index].owner != NULL; index++);
    if (index == layout_count) {
        int count = layout_count == 0 ? 64 : 2 * layout_count;
        used_layout_t *larger = MPL_realloc(layouts, count * sizeof(layouts[0]), MPL_MEM_DATATYPE);
        if (larger == NULL)
            return -1;
        memset(larger + layout_count, 0, (count - layout_count) * sizeof(layouts[0]));
        layouts = larger;
        layout_count = count;
    }
    free_from = index;
    return index;
}

/* Flattens a datatype. &packed_layout: it has too many pieces. NULL: there is no memory. */
static const ch3_offload_layout_t *flatten(const MPIR_Datatype * type)
{
    struct iovec iov[MOST_PIECES];
    MPI_Aint count, bytes, i;
    ch3_offload_layout_t *layout;
    ch3_offload_piece_t *pieces;

    MPIR_Typerep_to_iov(NULL, 1, type->handle, 0, iov, MOST_PIECES, type->size, &count, &bytes);
    if (bytes != type->size)
        return &packed_layout;
    layout = MPL_malloc(sizeof(*layout) + count * sizeof(*pieces), MPL_MEM_DATATYPE);
    if (layout == NULL)
        return NULL;
    pieces = (ch3_offload_piece_t *) (layout + 1);
    memset(layout, 0, sizeof(*layout));
    layout->kind = CH3_OFFLOAD_PIECES;
    layout->pieces = pieces;
    layout->element_bytes = type->size;
    layout->extent_bytes = type->extent;
    for (i = 0; i < count; i++) {
        if (iov[i].iov_len == 0)
            continue;
        pieces[layout->piece_count].offset_bytes = (char *) iov[i].iov_base - (char *) NULL;
        pieces[layout->piece_count].length_bytes = iov[i].iov_len;
        layout->piece_count++;
    }
    return layout;
}

/* The layout of a datatype that is used for the first time. Without memory it is packed, this time. */
static const ch3_offload_layout_t *make_layout(MPIR_Datatype * type)
{
    const int index = free_index();
    const ch3_offload_layout_t *layout = index < 0 ? NULL : flatten(type);

    if (layout == NULL)
        return &packed_layout;
    layouts[index].owner = type;
    layouts[index].layout = layout;
    layouts_used++;
    type->dev.foo = index;
    return layout;
}

int MPIDI_CH3I_Type_free_hook(MPIR_Datatype * type)
{
    used_layout_t *used = find_layout(type);

    if (used == NULL)
        return MPI_SUCCESS;
    if (used->layout != &packed_layout)
        MPL_free((void *) used->layout);
    used->owner = NULL;
    free_from = MPL_MIN(free_from, type->dev.foo);
    if (--layouts_used == 0) {
        MPL_free(layouts);
        layouts = NULL;
        layout_count = free_from = 0;
    }
    return MPI_SUCCESS;
}

void MPIDI_CH3I_Payload_of_type(const void *buf, MPI_Aint count, MPI_Datatype datatype, MPIR_Request * req,
                                ch3_offload_payload_t * payload)
{
    MPIR_Datatype *dt_ptr;
    const used_layout_t *used;
    MPI_Aint true_lb;
    intptr_t data_sz;
    int is_contiguous;

    MPIDI_Datatype_get_info(count, datatype, is_contiguous, data_sz, dt_ptr, true_lb);
    payload->length_bytes = data_sz;
    if (is_contiguous || data_sz == 0) {
        payload->address = data_sz == 0 ? NULL : MPIR_get_contig_ptr(buf, true_lb);
        payload->layout = NULL;
        return;
    }
    used = find_layout(dt_ptr);
    payload->layout = likely(used != NULL) ? used->layout : make_layout(dt_ptr);
    payload->address = payload->layout == &packed_layout ? (void *) req : (void *) buf;
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

/*
 * The ch3:offload channel: MPI buffers as the engine sees them.
 *
 * A contiguous buffer is an address and a length. A datatype that flattens into at most MOST_PIECES runs of
 * bytes is a list of them, made at its first use and kept until the datatype is freed. The engine moves such
 * payloads by itself.
 *
 * Anything else is packed and unpacked by byte range. The ranges follow one another, and may begin again at
 * the start. The engine chooses them, and they may cut a basic element, while an MPIR_Segment moves whole
 * basic elements only. The bytes of the element that a range has cut are kept (edge) until the next range
 * completes it.
 *
 * All that such an operation has is in its walk. The client makes the walk with the command and frees it when
 * the operation is over. In between it is the engine's: pack and unpack run in the engine's thread, if it has
 * one, beside everything else in MPICH (ch3:offload's src/ch3_offload/README.md, "Packing without a lock").
 * They read the walk, and the dataloop that its segment points to. They look up no handle of MPI, read no
 * request, and allocate nothing.
 */

#include "mpidi_ch3_impl.h"
#include "dataloop.h"

#define MOST_PIECES 64
/* Longest predefined datatype (a complex of two long doubles). */
#define MAX_BASIC_BYTES 32

typedef struct MPIDI_CH3I_Walk {
    MPIR_Segment *segment;      /* buffer, count, dataloop, and a cursor */
    intptr_t next;              /* where the next range begins, unless it begins again at 0 */
    intptr_t edge_offset;       /* where the element cut by the last range begins */
    int edge_bytes;             /* pack: its length; unpack: how much of it is here; 0: none */
    unsigned char edge[MAX_BASIC_BYTES];        /* its bytes */
} walk_t;

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

/* NULL: there is no memory. */
static walk_t *make_walk(const void *buf, MPI_Aint count, MPI_Datatype datatype)
{
    walk_t *walk = MPL_malloc(sizeof(*walk), MPL_MEM_DATATYPE);

    if (walk == NULL)
        return NULL;
    walk->segment = MPIR_Segment_alloc(buf, count, datatype);
    if (walk->segment == NULL) {
        MPL_free(walk);
        return NULL;
    }
    walk->next = 0;
    walk->edge_offset = 0;
    walk->edge_bytes = 0;
    return walk;
}

void MPIDI_CH3I_Free_walk(MPIR_Request * req)
{
    MPIR_Segment_free(req->ch.walk->segment);
    MPL_free(req->ch.walk);
    req->ch.walk = NULL;
}

MPI_Aint MPIDI_CH3I_Bytes_at_edge(const walk_t * walk)
{
    return walk->edge_bytes;
}

int MPIDI_CH3I_Plain_payload(const void *buf, MPI_Aint count, MPI_Datatype datatype,
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
        return TRUE;
    }
    used = find_layout(dt_ptr);
    payload->layout = likely(used != NULL) ? used->layout : make_layout(dt_ptr);
    payload->address = (void *) buf;
    return payload->layout != &packed_layout;
}

int MPIDI_CH3I_Payload_of_type(const void *buf, MPI_Aint count, MPI_Datatype datatype, MPIR_Request * req,
                               ch3_offload_payload_t * payload)
{
    int mpi_errno = MPI_SUCCESS;

    if (datatype == MPI_DATATYPE_NULL) {        /* MPICH lets it pass where there are no elements */
        memset(payload, 0, sizeof(*payload));
    } else if (!MPIDI_CH3I_Plain_payload(buf, count, datatype, payload)) {
        req->ch.walk = make_walk(buf, count, datatype);
        MPIR_ERR_CHKANDJUMP1(req->ch.walk == NULL, mpi_errno, MPI_ERR_OTHER, "**nomem", "**nomem %s",
                             "a walk through a datatype");
        payload->address = req->ch.walk;
    }

  fn_exit:
    return mpi_errno;
  fn_fail:
    goto fn_exit;
}

void MPIDI_CH3I_Hold_datatype(MPIR_Request * req)
{
    if (req->dev.datatype_ptr == NULL && !HANDLE_IS_BUILTIN(req->dev.datatype) &&
        req->dev.datatype != MPI_DATATYPE_NULL) {
        MPIR_Datatype_get_ptr(req->dev.datatype, req->dev.datatype_ptr);
        MPIR_Datatype_ptr_add_ref(req->dev.datatype_ptr);
    }
}

/* Moves the segment's next bytes, as far as `length` holds whole basic elements of them. Returns how many. */
static intptr_t pack_elements(walk_t * walk, intptr_t offset, void *out, intptr_t length)
{
    MPI_Aint end = offset + length;

    MPIR_Segment_pack(walk->segment, offset, &end, out);
    return end - offset;
}

static intptr_t unpack_elements(walk_t * walk, intptr_t offset, const void *in, intptr_t length)
{
    MPI_Aint end = offset + length;

    MPIR_Segment_unpack(walk->segment, offset, &end, in);
    return end - offset;
}

static void begin_range(walk_t * walk, intptr_t offset, intptr_t length)
{
    MPIR_Assert(offset == walk->next || offset == 0);
    if (offset == 0)
        walk->edge_bytes = 0;
    walk->next = offset + length;
}

static void pack(const void *context, size_t offset_bytes, void *destination, size_t length_bytes)
{
    walk_t *walk = (walk_t *) context;
    intptr_t offset = offset_bytes;
    intptr_t length = length_bytes;
    char *out = destination;
    intptr_t packed;

    begin_range(walk, offset, length);
    if (walk->edge_bytes > 0) {
        intptr_t used = offset - walk->edge_offset;
        intptr_t n = MPL_MIN(length, walk->edge_bytes - used);
        MPIR_Memcpy(out, walk->edge + used, n);
        out += n;
        offset += n;
        length -= n;
        if (used + n < walk->edge_bytes)
            return;
        walk->edge_bytes = 0;
    }
    if (length == 0)
        return;

    packed = pack_elements(walk, offset, out, length);
    out += packed;
    offset += packed;
    length -= packed;
    if (length > 0) {
        /* The range ends inside a basic element. */
        packed = pack_elements(walk, offset, walk->edge, MAX_BASIC_BYTES);
        MPIR_Assert(packed > length);
        MPIR_Memcpy(out, walk->edge, length);
        walk->edge_offset = offset;
        walk->edge_bytes = packed;
    }
}

static void unpack(void *context, size_t offset_bytes, const void *source, size_t length_bytes)
{
    walk_t *walk = context;
    intptr_t offset = offset_bytes;
    intptr_t length = length_bytes;
    const char *in = source;
    intptr_t unpacked;

    begin_range(walk, offset, length);
    if (walk->edge_bytes > 0) {
        /* Complete the element that the last range has begun (and whole ones that fit behind it). */
        intptr_t n = MPL_MIN(length, MAX_BASIC_BYTES - walk->edge_bytes);
        MPIR_Memcpy(walk->edge + walk->edge_bytes, in, n);
        unpacked = unpack_elements(walk, walk->edge_offset, walk->edge, walk->edge_bytes + n);
        if (unpacked == 0) {
            walk->edge_bytes += n;
            return;
        }
        n = unpacked - walk->edge_bytes;
        MPIR_Assert(n > 0);
        in += n;
        offset += n;
        length -= n;
        walk->edge_bytes = 0;
    }
    if (length == 0)
        return;

    unpacked = unpack_elements(walk, offset, in, length);
    in += unpacked;
    offset += unpacked;
    length -= unpacked;
    if (length > 0) {
        MPIR_Assert(length < MAX_BASIC_BYTES);
        MPIR_Memcpy(walk->edge, in, length);
        walk->edge_offset = offset;
        walk->edge_bytes = length;
    }
}

/*
 * The ch3:offload channel: what operations on windows ask of datatypes (ch3_window_ops.h).
 */

#include "ch3_window_ops.h"
#include "mpir_op_util.h"

/* ---- what the processor computes with ---- */

int MPIDI_CH3I_Integer_type(size_t bytes, int is_signed)
{
    switch (bytes) {
        case 1:
            return is_signed ? CH3_OFFLOAD_INT8 : CH3_OFFLOAD_UINT8;
        case 2:
            return is_signed ? CH3_OFFLOAD_INT16 : CH3_OFFLOAD_UINT16;
        case 4:
            return is_signed ? CH3_OFFLOAD_INT32 : CH3_OFFLOAD_UINT32;
        case 8:
            return is_signed ? CH3_OFFLOAD_INT64 : CH3_OFFLOAD_UINT64;
        default:
            return CH3_OFFLOAD_NO_TYPE;
    }
}

static int floating_type(size_t bytes)
{
    return bytes == sizeof(float) ? CH3_OFFLOAD_FLOAT : bytes == sizeof(double) ? CH3_OFFLOAD_DOUBLE :
        bytes == sizeof(long double) ? CH3_OFFLOAD_LONG_DOUBLE : CH3_OFFLOAD_NO_TYPE;
}

static int complex_type(size_t bytes)
{
    return bytes == 2 * sizeof(float) ? CH3_OFFLOAD_FLOAT_COMPLEX :
        bytes == 2 * sizeof(double) ? CH3_OFFLOAD_DOUBLE_COMPLEX :
        bytes == 2 * sizeof(long double) ? CH3_OFFLOAD_LONG_DOUBLE_COMPLEX : CH3_OFFLOAD_NO_TYPE;
}

/* Pairs whose halves are of one type. */
static int equal_pair(MPI_Datatype type)
{
#if MPIDI_CH3I_MPICH_IS(5, 0)
    MPIR_DATATYPE_REPLACE_BUILTIN(type);
    switch (HANDLE_IS_BUILTIN(type) ? MPIR_DATATYPE_GET_RAW_INTERNAL(type) : type) {
        case MPIR_2INT32:
            return CH3_OFFLOAD_INT_INT;
        case MPIR_2FLOAT32:
            return CH3_OFFLOAD_FLOAT_FLOAT;
        case MPIR_2FLOAT64:
            return CH3_OFFLOAD_DOUBLE_DOUBLE;
#else
    switch (type) {
        case MPI_2INT:
            return CH3_OFFLOAD_INT_INT;
#ifdef HAVE_FORTRAN_BINDING
        case MPI_2INTEGER:
            return CH3_OFFLOAD_INT_INT;
        case MPI_2REAL:
            return CH3_OFFLOAD_FLOAT_FLOAT;
        case MPI_2DOUBLE_PRECISION:
            return CH3_OFFLOAD_DOUBLE_DOUBLE;
#endif
#endif
        default:
            return CH3_OFFLOAD_NO_TYPE;
    }
}

int MPIDI_CH3I_Pair_type(MPI_Datatype type)
{
    switch (type) {
        case MPI_SHORT_INT:
            return CH3_OFFLOAD_SHORT_INT;
        case MPI_LONG_INT:
            return CH3_OFFLOAD_LONG_INT;
        case MPI_FLOAT_INT:
            return CH3_OFFLOAD_FLOAT_INT;
        case MPI_DOUBLE_INT:
            return CH3_OFFLOAD_DOUBLE_INT;
        case MPI_LONG_DOUBLE_INT:
            return CH3_OFFLOAD_LONG_DOUBLE_INT;
        default:
            return equal_pair(type);
    }
}

#if MPIDI_CH3I_MPICH_IS(5, 0)
/* The handle says what it is, and how many bytes it has. */
int MPIDI_CH3I_Element_type(MPI_Datatype type)
{
    size_t bytes;

    MPIR_DATATYPE_REPLACE_BUILTIN(type);
    if (!HANDLE_IS_BUILTIN(type) || (type & MPIR_TYPE_PAIR_MASK))
        return MPIDI_CH3I_Pair_type(type);
    bytes = MPIR_Datatype_get_basic_size(type);
    switch (type & MPIR_TYPE_TYPE_MASK) {
        case MPIR_TYPE_SIGNED:
            return MPIDI_CH3I_Integer_type(bytes, TRUE);
        case MPIR_TYPE_UNSIGNED:
        case MPIR_TYPE_FORTRAN_LOGICAL:
            return MPIDI_CH3I_Integer_type(bytes, FALSE);
        case MPIR_TYPE_FLOAT:  /* as IEEE 754 has it, which a long double may not be */
            return bytes > sizeof(double) ? CH3_OFFLOAD_NO_TYPE : floating_type(bytes);
        case MPIR_TYPE_ALT_FLOAT:
            return bytes == sizeof(long double) ? CH3_OFFLOAD_LONG_DOUBLE : CH3_OFFLOAD_NO_TYPE;
        case MPIR_TYPE_COMPLEX:
            return bytes > 2 * sizeof(double) ? CH3_OFFLOAD_NO_TYPE : complex_type(bytes);
        case MPIR_TYPE_ALT_COMPLEX:
            return bytes == 2 * sizeof(long double) ? CH3_OFFLOAD_LONG_DOUBLE_COMPLEX : CH3_OFFLOAD_NO_TYPE;
        default:
            return CH3_OFFLOAD_NO_TYPE;
    }
}
#else
#define IS_SIGNED(c_type_) ((c_type_) -1 < (c_type_) 1)

int MPIDI_CH3I_Element_type(MPI_Datatype type)
{
    switch (type) {
#undef MPIR_OP_TYPE_MACRO
#define MPIR_OP_TYPE_MACRO(mpi_type_, c_type_, name_) \
        case (mpi_type_): return MPIDI_CH3I_Integer_type(sizeof(c_type_), IS_SIGNED(c_type_));
        MPIR_OP_TYPE_GROUP(C_INTEGER)
        MPIR_OP_TYPE_GROUP(C_INTEGER_EXTRA)
        MPIR_OP_TYPE_GROUP(FORTRAN_INTEGER)
        MPIR_OP_TYPE_GROUP(FORTRAN_INTEGER_EXTRA)
#undef MPIR_OP_TYPE_MACRO
#define MPIR_OP_TYPE_MACRO(mpi_type_, c_type_, name_) \
        case (mpi_type_): return MPIDI_CH3I_Integer_type(sizeof(c_type_), FALSE);
        MPIR_OP_TYPE_GROUP(LOGICAL)
        MPIR_OP_TYPE_GROUP(BYTE)
#undef MPIR_OP_TYPE_MACRO
#define MPIR_OP_TYPE_MACRO(mpi_type_, c_type_, name_) \
        case (mpi_type_): return floating_type(sizeof(c_type_));
        MPIR_OP_TYPE_GROUP(FLOATING_POINT)
        MPIR_OP_TYPE_GROUP(FLOATING_POINT_EXTRA)
#undef MPIR_OP_TYPE_MACRO
#define MPIR_OP_TYPE_MACRO(mpi_type_, c_type_, name_) \
        case (mpi_type_): return complex_type(sizeof(c_type_));
        MPIR_OP_TYPE_GROUP(COMPLEX)
        MPIR_OP_TYPE_GROUP(COMPLEX_EXTRA)
#undef MPIR_OP_TYPE_MACRO
        default:
            return MPIDI_CH3I_Pair_type(type);
    }
}
#endif

int MPIDI_CH3I_Atomic_of(MPI_Op op, uint8_t * atomic)
{
    static const struct {
        MPI_Op op;
        uint8_t atomic;
    } all[] = {
        {MPI_SUM, CH3_OFFLOAD_SUM},
        {MPI_MAX, CH3_OFFLOAD_MAX},
        {MPI_MIN, CH3_OFFLOAD_MIN},
        {MPI_PROD, CH3_OFFLOAD_PROD},
        {MPI_LAND, CH3_OFFLOAD_LAND},
        {MPI_BAND, CH3_OFFLOAD_BAND},
        {MPI_LOR, CH3_OFFLOAD_LOR},
        {MPI_BOR, CH3_OFFLOAD_BOR},
        {MPI_LXOR, CH3_OFFLOAD_LXOR},
        {MPI_BXOR, CH3_OFFLOAD_BXOR},
        {MPI_MINLOC, CH3_OFFLOAD_MIN},
        {MPI_MAXLOC, CH3_OFFLOAD_MAX}
    };
    size_t i;

    for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i].op == op) {
            *atomic = all[i].atomic;
            return TRUE;
        }
    }
    return FALSE;
}

/* ---- of any datatype ---- */

MPI_Aint MPIDI_CH3I_Size_of(MPI_Aint count, MPI_Datatype type)
{
    MPI_Aint size;

    MPIR_Datatype_get_size_macro(type, size);
    return count * size;
}

int MPIDI_CH3I_Next_run(MPIDI_CH3I_Runs_t * runs, uint64_t * offset, size_t * length)
{
    int is_contiguous;
    MPI_Aint size, true_lb, bytes;
    MPIR_Datatype *pointer;

    for (;;) {
        if (runs->next < runs->known) {
            const struct iovec *run = &runs->iov[runs->next++];

            *offset = runs->base + (uintptr_t) run->iov_base;
            *length = run->iov_len;
            if (run->iov_len > 0)
                return TRUE;
            continue;
        }
        if (runs->position == runs->bytes)
            return FALSE;
        MPIDI_Datatype_get_info(runs->count, runs->type, is_contiguous, size, pointer, true_lb);
        if (is_contiguous) {
            runs->iov[0].iov_base = (void *) (uintptr_t) true_lb;
            runs->iov[0].iov_len = size;
            runs->known = 1;
            bytes = size;
        } else {
            MPIR_Typerep_to_iov(NULL, runs->count, runs->type, runs->position, runs->iov,
                                MPIDI_CH3I_RUNS_AT_ONCE, runs->bytes - runs->position, &runs->known,
                                &bytes);
            if (bytes == 0)
                return FALSE;
        }
        runs->next = 0;
        runs->position += bytes;
    }
}

MPI_Datatype MPIDI_CH3I_Basic_of(MPI_Datatype type)
{
    MPIR_Datatype *pointer;

    if (MPIR_DATATYPE_IS_PREDEFINED(type))
        return type;
    MPIR_Datatype_get_ptr(type, pointer);
    return pointer->basic_type;
}

int MPIDI_CH3I_Has_gap(MPI_Datatype basic)
{
    MPI_Aint extent;

    MPIR_Datatype_get_extent_macro(basic, extent);
    return extent != MPIDI_CH3I_Size_of(1, basic);
}

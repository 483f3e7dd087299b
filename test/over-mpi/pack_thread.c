/* For test/over-mpi/run: a second thread packs and unpacks datatypes without any lock of MPICH, while the main
 * thread sends, receives, makes and frees other datatypes. An engine in a thread of its own does this, too:
 * ch3_layout.c of the glue says why it may.
 *
 * MPI_Init gives MPI_THREAD_SINGLE, with which MPICH takes no lock. So MPI_Pack and MPI_Unpack of the second
 * thread are MPIR_Typerep_pack and MPIR_Typerep_unpack as they are. (A program may not do this; this one does
 * not call anything else of MPI there.) The datatypes that it uses are held by pending sends only: the program
 * has freed them. */
#include "over_mpi.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    kBlocks = 300,              /* of a type: more than the glue gives to the engine as pieces */
    kCopies = 12,               /* of the blocks, in a type: beyond the eager limit */
    kTypes = 6,                 /* that the thread packs */
    kAlive = 1500               /* other types at a time: more than a block of MPICH's objects holds */
};

/* A type of kCopies times kBlocks runs of bytes. */
typedef struct {
    MPI_Datatype type;
    MPI_Request send;
    size_t memory_bytes, packed_bytes;
    size_t offset_bytes[kBlocks], length_bytes[kBlocks];
    size_t stride_bytes;        /* from one copy to the next */
    unsigned char *memory, *packed;
} held_t;

static held_t held[kTypes];
static atomic_int is_over;
static atomic_long rounds;

/* Copies between a type's memory and contiguous memory. */
static void move(const held_t * one, unsigned char *memory, unsigned char *contiguous, int to_memory)
{
    for (int copy = 0; copy < kCopies; copy++) {
        for (int i = 0; i < kBlocks; i++) {
            unsigned char *block = memory + copy * one->stride_bytes + one->offset_bytes[i];
            if (to_memory)
                memcpy(block, contiguous, one->length_bytes[i]);
            else
                memcpy(contiguous, block, one->length_bytes[i]);
            contiguous += one->length_bytes[i];
        }
    }
}

/* Type `number`: plain, inside a vector, or inside a struct of a struct, by turns. */
static void make_held(held_t * one, int number)
{
    int lengths[kBlocks];
    MPI_Aint displacements[kBlocks];
    MPI_Datatype blocks;
    size_t at = 0;
    uint64_t state = 100 + number;

    one->packed_bytes = 0;
    for (int i = 0; i < kBlocks; i++) {
        at += next_random(&state, 9);
        one->offset_bytes[i] = at;
        one->length_bytes[i] = 1 + next_random(&state, 40);
        at += one->length_bytes[i];
        displacements[i] = one->offset_bytes[i];
        lengths[i] = one->length_bytes[i];
        one->packed_bytes += one->length_bytes[i];
    }
    one->stride_bytes = at + 16;
    one->packed_bytes *= kCopies;
    one->memory_bytes = kCopies * one->stride_bytes;
    MPI_Type_create_hindexed(kBlocks, lengths, displacements, MPI_BYTE, &blocks);
    if (number % 3 == 0) {
        MPI_Datatype resized;
        MPI_Type_create_resized(blocks, 0, one->stride_bytes, &resized);
        MPI_Type_contiguous(kCopies, resized, &one->type);
        MPI_Type_free(&resized);
    } else if (number % 3 == 1) {
        MPI_Type_create_hvector(kCopies, 1, one->stride_bytes, blocks, &one->type);
    } else {
        int counts[2] = { 1, 1 };
        MPI_Aint places[2] = { 0, one->stride_bytes };
        MPI_Datatype parts[2] = { blocks, MPI_DATATYPE_NULL };
        MPI_Type_create_hvector(kCopies - 1, 1, one->stride_bytes, blocks, &parts[1]);
        MPI_Type_create_struct(2, counts, places, parts, &one->type);
        MPI_Type_free(&parts[1]);
    }
    MPI_Type_free(&blocks);
    MPI_Type_commit(&one->type);
    one->memory = allocate(one->memory_bytes);
    one->packed = allocate(one->packed_bytes);
    fill(one->memory, one->memory_bytes, 10 * rank + number);
    move(one, one->memory, one->packed, 0);
}

/* Fails unless all is as it should be. MPI_Abort of a second thread ends the job as well. */
static void pack_and_unpack(const held_t * one, unsigned char *contiguous, unsigned char *spread,
                            unsigned char *wanted)
{
    int position = 0;

    memset(contiguous, 0xEE, one->packed_bytes);
    MPI_Pack(one->memory, 1, one->type, contiguous, one->packed_bytes, &position, MPI_COMM_WORLD);
    if (position != (int) one->packed_bytes || memcmp(contiguous, one->packed, one->packed_bytes) != 0)
        fail("packed wrongly by the second thread (%d of %zu bytes)", position, one->packed_bytes);
    memset(spread, 0xEE, one->memory_bytes);
    memset(wanted, 0xEE, one->memory_bytes);
    move(one, wanted, one->packed, 1);
    position = 0;
    MPI_Unpack(one->packed, one->packed_bytes, &position, spread, 1, one->type, MPI_COMM_WORLD);
    if (position != (int) one->packed_bytes || memcmp(spread, wanted, one->memory_bytes) != 0)
        fail("unpacked wrongly by the second thread (%d of %zu bytes)", position, one->packed_bytes);
}

static void *second_thread(void *unused)
{
    size_t longest = 0;
    unsigned char *contiguous, *spread, *wanted;

    for (int i = 0; i < kTypes; i++)
        longest = held[i].memory_bytes > longest ? held[i].memory_bytes : longest;
    contiguous = allocate(longest);
    spread = allocate(longest);
    wanted = allocate(longest);
    while (!atomic_load(&is_over)) {
        for (int i = 0; i < kTypes; i++)
            pack_and_unpack(&held[i], contiguous, spread, wanted);
        atomic_fetch_add(&rounds, 1);
    }
    free(contiguous);
    free(spread);
    free(wanted);
    return unused;
}

/* Sends `ints` of every second int to the other rank and receives as many, as pieces or packed by their number. */
static void exchange(MPI_Datatype type, int ints, uint32_t seed)
{
    uint32_t *out = allocate(8 * (size_t) ints), *in = allocate(8 * (size_t) ints);

    for (int i = 0; i < ints; i++) {
        out[2 * i] = word_at(seed + rank, i);
        out[2 * i + 1] = in[2 * i] = in[2 * i + 1] = 0;
    }
    MPI_Sendrecv(out, 1, type, 1 - rank, 1, in, 1, type, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < ints; i++)
        if (in[2 * i] != word_at(seed + 1 - rank, i) || in[2 * i + 1] != 0)
            fail("int %d of %d is wrong", i, ints);
    free(out);
    free(in);
}

static void pack_thread(void)
{
    static MPI_Datatype alive[kAlive];
    const int messages = is_long()? 1000000 : 20000;
    pthread_t thread;
    uint64_t state = 5;
    long done;

    for (int i = 0; i < kTypes; i++) {
        MPI_Datatype type;
        make_held(&held[i], i);
        MPI_Issend(held[i].memory, 1, held[i].type, 1 - rank, 100 + i, MPI_COMM_WORLD, &held[i].send);
        type = held[i].type;
        MPI_Type_free(&type);   /* the send holds it */
    }
    if (pthread_create(&thread, NULL, second_thread, NULL) != 0)
        fail("no second thread");
    for (int i = 0; i < kAlive; i++)
        alive[i] = MPI_DATATYPE_NULL;
    for (int i = 0; i < messages || atomic_load(&rounds) < 20; i++) {
        const int ints = 1 + next_random(&state, i % 4 == 0 ? 400 : 100);
        MPI_Datatype *type = &alive[i % kAlive];
        if (*type != MPI_DATATYPE_NULL)
            MPI_Type_free(type);
        MPI_Type_vector(ints, 1, 2, MPI_UINT32_T, type);
        MPI_Type_commit(type);
        if (i < messages)
            exchange(*type, ints, i);
    }
    atomic_store(&is_over, 1);
    pthread_join(thread, NULL);
    done = atomic_load(&rounds);
    if (done < 20)
        fail("the second thread has ended only %ld rounds", done);
    for (int i = 0; i < kAlive; i++)
        if (alive[i] != MPI_DATATYPE_NULL)
            MPI_Type_free(&alive[i]);
    for (int i = 0; i < kTypes; i++) {
        unsigned char *in = allocate(held[i].packed_bytes), *wanted = allocate(held[i].memory_bytes);
        MPI_Recv(in, held[i].packed_bytes, MPI_BYTE, 1 - rank, 100 + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        fill(wanted, held[i].memory_bytes, 10 * (1 - rank) + i);
        move(&held[i], wanted, held[i].packed, 0);
        if (memcmp(in, held[i].packed, held[i].packed_bytes) != 0)
            fail("message %d is wrong", i);
        free(in);
        free(wanted);
    }
    for (int i = 0; i < kTypes; i++) {
        MPI_Wait(&held[i].send, MPI_STATUS_IGNORE);
        free(held[i].memory);
        free(held[i].packed);
    }
}

int main(int argc, char **argv)
{
    static const program_t programs[] = { {"pack-thread", pack_thread} };
    return run_program(argc, argv, programs, 1);
}

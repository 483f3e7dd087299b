/* Processes that speak to each other for the first time. In "answers", rank 0 receives from all others and
 * answers them. With more than 32 on a node, they ask the process manager for its card; it asks for nobody's,
 * because who has connected has said how it is reached. With fewer, all cards were told in MPI_Init: "alone" is
 * the same while the process manager does not answer. In "word", each process waits for one that it does not know. */
#include "over_mpi.h"

#include <fcntl.h>
#include <unistd.h>

enum { kTag = 7, kAnswers = 3, kMostTold = 32 };

/* Of this process; -1: there is no such variable. */
static long long cards_wanted(void)
{
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    unsigned long long value = 0;
    int provided, index, count;

    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    if (MPI_T_pvar_get_index("ch3_offload_cards_wanted", MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS)
        return -1;
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count);
    MPI_T_pvar_read(session, handle, &value);
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    return (long long) value;
}

/* A synchronous message takes an ACK, a long one a CTS, and then there are messages that answer. */
static void answer(int peer, size_t length)
{
    char *memory = allocate(length);

    snprintf(doing, sizeof doing, "answering %d", peer);
    MPI_Recv(memory, (int) length, MPI_CHAR, peer, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(memory, length, peer, "what a stranger sent");
    for (int i = 0; i < kAnswers; i++)
        MPI_Send(memory, (int) length, MPI_CHAR, peer, kTag, MPI_COMM_WORLD);
    free(memory);
}

static void speak(size_t length)
{
    char *memory = allocate(length);

    snprintf(doing, sizeof doing, "%zu bytes to a stranger", length);
    fill(memory, length, rank);
    MPI_Ssend(memory, (int) length, MPI_CHAR, 0, kTag, MPI_COMM_WORLD);
    for (int i = 0; i < kAnswers; i++) {
        memset(memory, 0, length);
        MPI_Recv(memory, (int) length, MPI_CHAR, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect(memory, length, rank, "the answer");
    }
    free(memory);
}

static size_t length_of(int peer)
{
    static const size_t lengths[] = { 8, 3000, 200000 };

    return lengths[peer % 3];
}

static void answers(void)
{
    long long wanted;

    for (int peer = 1; rank == 0 && peer < size; peer++)
        answer(peer, length_of(peer));
    if (rank != 0)
        speak(length_of(rank));
    wanted = cards_wanted();
    if (wanted != (size > kMostTold && rank != 0))
        fail("%lld cards were asked for", wanted);
}

static void alone(void)
{
    const int manager = atoi(getenv("PMI_FD")), kept = dup(manager), nobody = open("/dev/null", O_RDWR);

    dup2(nobody, manager);
    answers();
    dup2(kept, manager);
}

/* Each process waits for a word of the one before, which it does not know, and passes it on. SPIN lets it poll
 * for seconds, and it hears the word while it does. */
static void pass_a_word(void)
{
    enum { kThinkUs = 10000, kPatience = 1 };   /* far above what a machine under load needs */
    const double began = MPI_Wtime();

    if (rank > 0) {
        snprintf(doing, sizeof doing, "waiting for a word");
        MPI_Recv(NULL, 0, MPI_CHAR, rank - 1, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    usleep(kThinkUs);
    if (rank < size - 1)
        MPI_Send(NULL, 0, MPI_CHAR, rank + 1, kTag, MPI_COMM_WORLD);
    else if (MPI_Wtime() - began > kPatience)
        fail("the word took %.1f s", MPI_Wtime() - began);
}

int main(int argc, char **argv)
{
    static const program_t programs[] = { {"answers", answers}, {"alone", alone}, {"word", pass_a_word} };
    return run_program(argc, argv, programs, sizeof programs / sizeof programs[0]);
}

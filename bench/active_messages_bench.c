/* Bulk data to another process of this node, until its sender knows that it is in its place: by active messages
 * whose function copies it there, by put, and by stores into mapped memory. The program makes the second process
 * by itself, and checks all data.
 *
 * cc -O2 -o active_messages_bench bench/active_messages_bench.c $(pkg-config --cflags --libs ch3-offload-am)
 *
 * usage: active_messages_bench REPETITIONS
 */
#include <ch3_offload_am.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A part has room beside its offset and the heads of both values. */
enum { kMost = 1 << 20, kPart = CH3_OFFLOAD_AM_MOST_BYTES - 16, kSkipped = 10 };

#define MUST(call) must((call) == CH3_OFFLOAD_AM_OK, #call)

static ch3_offload_am_t *am;
static unsigned char *place;    /* where it is to be, at the receiver */
static int is_over, is_there;

static void must(int is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "active_messages_bench: %s failed\n", what);
    exit(1);
}

static void poll_until(const int *is_so)
{
    while (!*is_so)
        must(ch3_offload_am_poll(am, 1000) <= CH3_OFFLOAD_AM_AGAIN, "ch3_offload_am_poll");
}

static void send_message(ch3_offload_am_peer_t *to, const char *name,
                         const ch3_offload_am_arguments_t *arguments)
{
    int code;
    while ((code = ch3_offload_am_send(to, name, arguments)) == CH3_OFFLOAD_AM_AGAIN)
        must(ch3_offload_am_poll(am, 1000) <= CH3_OFFLOAD_AM_AGAIN, "ch3_offload_am_poll");
    MUST(code);
}

/* ---- The receiver ---- */

static void part(void *context, ch3_offload_am_message_t *message, ch3_offload_am_reader_t *arguments)
{
    uint32_t offset;
    const void *bytes;
    size_t length;
    (void) context;
    (void) message;
    MUST(ch3_offload_am_read_u32(arguments, &offset));
    MUST(ch3_offload_am_read_bytes(arguments, &bytes, &length));
    must(offset <= kMost && length <= kMost - offset, "a part's place");
    memcpy(place + offset, bytes, length);
}

/* All before is in its place. */
static void whole(void *context, ch3_offload_am_message_t *message, ch3_offload_am_reader_t *arguments)
{
    (void) context;
    (void) arguments;
    MUST(ch3_offload_am_reply(message, "there", NULL));
}

/* Is it as the sender says, and nothing behind it? Then the place is empty again. */
static void check(void *context, ch3_offload_am_message_t *message, ch3_offload_am_reader_t *arguments)
{
    uint32_t length, value;
    (void) context;
    MUST(ch3_offload_am_read_u32(arguments, &length));
    MUST(ch3_offload_am_read_u32(arguments, &value));
    for (uint32_t i = 0; i < kMost; i++)
        must(place[i] == (i < length ? (unsigned char) (i * 7 + value) : 0), "data");
    memset(place, 0, kMost);
    MUST(ch3_offload_am_reply(message, "there", NULL));
}

static void over(void *context, ch3_offload_am_message_t *message, ch3_offload_am_reader_t *arguments)
{
    (void) context;
    (void) message;
    (void) arguments;
    is_over = 1;
}

/* ---- The sender ---- */

static void there(void *context, ch3_offload_am_message_t *message, ch3_offload_am_reader_t *arguments)
{
    (void) context;
    (void) message;
    (void) arguments;
    is_there = 1;
}

static void put_done(void *context, int code)
{
    (void) context;
    MUST(code);
    is_there = 1;
}

static void by_messages(ch3_offload_am_peer_t *to, const unsigned char *from, size_t length)
{
    ch3_offload_am_arguments_t arguments;

    for (size_t at = 0; at < length; at += kPart) {
        size_t rest = length - at;
        ch3_offload_am_begin(&arguments);
        ch3_offload_am_append_u32(&arguments, (uint32_t) at);
        ch3_offload_am_append_bytes(&arguments, from + at, rest < kPart ? rest : kPart);
        send_message(to, "part", &arguments);
    }
    is_there = 0;
    send_message(to, "whole", NULL);
    poll_until(&is_there);
}

static void by_put(ch3_offload_am_remote_t *remote, const unsigned char *from, size_t length)
{
    is_there = 0;
    MUST(ch3_offload_am_put(remote, 0, from, length, put_done, NULL));
    poll_until(&is_there);
}

/* Stores, and a message that says so. */
static void by_stores(ch3_offload_am_peer_t *to, ch3_offload_am_remote_t *remote, const unsigned char *from,
                      size_t length)
{
    memcpy(ch3_offload_am_mapped(remote), from, length);
    is_there = 0;
    send_message(to, "whole", NULL);
    poll_until(&is_there);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double) now.tv_sec + 1e-3 * (double) now.tv_nsec;
}

/* The median in microseconds. */
static double measure(int way, ch3_offload_am_peer_t *to, ch3_offload_am_remote_t *remote, size_t length,
                      int repetitions)
{
    static unsigned char from[kMost];
    double *times = malloc((size_t) repetitions * sizeof *times), median;
    ch3_offload_am_arguments_t arguments;

    must(times != NULL, "malloc");
    for (size_t i = 0; i < length; i++)
        from[i] = (unsigned char) (i * 7 + (unsigned) way);
    for (int i = -kSkipped; i < repetitions; i++) {
        double begin = now_us();
        if (way == 0)
            by_messages(to, from, length);
        else if (way == 1)
            by_put(remote, from, length);
        else
            by_stores(to, remote, from, length);
        if (i >= 0)
            times[i] = now_us() - begin;
    }
    ch3_offload_am_begin(&arguments);
    ch3_offload_am_append_u32(&arguments, (uint32_t) length);
    ch3_offload_am_append_u32(&arguments, (uint32_t) way);
    is_there = 0;
    send_message(to, "check", &arguments);
    poll_until(&is_there);
    qsort(times, (size_t) repetitions, sizeof *times, by_value);
    median = times[repetitions / 2];
    free(times);
    return median;
}

static void failed(void *context, ch3_offload_am_peer_t *peer, int code, uint64_t function)
{
    (void) context;
    (void) peer;
    (void) function;
    (void) code;
    /* The other has ended: this one, too, if that was too early. */
    must(is_over, "the other process");
}

int main(int argc, char **argv)
{
    static const size_t lengths[] = { 8, 64, 1024, 4000, 16384, 65536, 262144, kMost };
    struct {
        ch3_offload_am_address_t address;
        ch3_offload_am_name_t name;
    } hello;
    ch3_offload_am_region_t *region;
    ch3_offload_am_remote_t *remote;
    ch3_offload_am_peer_t *receiver;
    int repetitions = argc == 2 ? atoi(argv[1]) : 0;
    int sockets[2], status = 0;
    pid_t child;

    if (repetitions < 1) {
        fputs("usage: active_messages_bench REPETITIONS\n", stderr);
        return 2;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || (child = fork()) < 0) {
        perror("active_messages_bench");
        return 1;
    }
    MUST(ch3_offload_am_open(failed, NULL, &am));
    if (child == 0) {
        MUST(ch3_offload_am_register(am, "part", part, NULL));
        MUST(ch3_offload_am_register(am, "whole", whole, NULL));
        MUST(ch3_offload_am_register(am, "check", check, NULL));
        MUST(ch3_offload_am_register(am, "over", over, NULL));
        MUST(ch3_offload_am_allocate(am, kMost, &region));
        place = ch3_offload_am_memory(region);
        MUST(ch3_offload_am_address(am, &hello.address));
        MUST(ch3_offload_am_name(region, &hello.name));
        must(write(sockets[0], &hello, sizeof hello) == sizeof hello, "write");
        poll_until(&is_over);
        MUST(ch3_offload_am_flush(am, 10000));
    } else {
        close(sockets[0]);
        must(read(sockets[1], &hello, sizeof hello) == sizeof hello, "read");
        MUST(ch3_offload_am_register(am, "there", there, NULL));
        MUST(ch3_offload_am_find_peer(am, &hello.address, &receiver));
        MUST(ch3_offload_am_attach(am, &hello.name, &remote));
        must(ch3_offload_am_mapped(remote) != NULL, "mapping");
        printf("%10s %16s %12s %12s   median[usec]\n", "bytes", "active messages", "put", "stores");
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            printf("%10zu", lengths[i]);
            for (int way = 0; way < 3; way++)
                printf(" %*.2f", way == 0 ? 16 : 12, measure(way, receiver, remote, lengths[i], repetitions));
            printf("\n");
        }
        is_over = 1;
        send_message(receiver, "over", NULL);
        MUST(ch3_offload_am_flush(am, 10000));
    }
    while (ch3_offload_am_close(am) == CH3_OFFLOAD_AM_AGAIN) {
    }
    if (child == 0)
        return 0;
    waitpid(child, &status, 0);
    must(status == 0, "the receiver");
    return 0;
}

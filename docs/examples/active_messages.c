/* A table of named values in one process, which another one fills and reads by active messages; a picture moves by remote
 * memory. The program makes the second process by itself, and checks all data.
 *
 * cc -o active_messages active_messages.c $(pkg-config --cflags --libs ch3-offload-am)
 */

#include <ch3_offload_am.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kValues = 1000, kPictureBytes = 1 << 20 };

#define MUST(call) must((call) == CH3_OFFLOAD_AM_OK, #call)

static const char *process;
static ch3_offload_am_t *am;

static void must(int is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "%s: %s failed\n", process, what);
    exit(1);
}

static void poll_once(void)
{
    must(ch3_offload_am_poll(am, 1000) <= CH3_OFFLOAD_AM_AGAIN, "ch3_offload_am_poll");
}

/* Where there is no room, the program polls and tries again. */
static void send_message(ch3_offload_am_peer_t *to, const char *function, const ch3_offload_am_arguments_t *arguments)
{
    int code;
    while ((code = ch3_offload_am_send(to, function, arguments)) == CH3_OFFLOAD_AM_AGAIN)
        poll_once();
    MUST(code);
}

/* ---- The server ---- */

static double values[kValues];
static int is_finished;
static ch3_offload_am_region_t *picture;

static void set(void *context, ch3_offload_am_message_t *message, ch3_offload_am_reader_t *arguments)
{
    uint32_t index;
    double value;
    (void) context;
    (void) message;
    /* What a message brings is checked: it may be of any process of this user. */
    if (ch3_offload_am_read_u32(arguments, &index) == CH3_OFFLOAD_AM_OK && index < kValues
        && ch3_offload_am_read_double(arguments, &value) == CH3_OFFLOAD_AM_OK)
        values[index] = value;
}

static void sum(void *context, ch3_offload_am_message_t *message, ch3_offload_am_reader_t *arguments)
{
    ch3_offload_am_arguments_t result;
    double total = 0;
    (void) context;
    (void) arguments;
    for (int i = 0; i < kValues; i++)
        total += values[i];
    ch3_offload_am_begin(&result);
    ch3_offload_am_append_double(&result, total);
    MUST(ch3_offload_am_reply(message, "result", &result));
}

static void where(void *context, ch3_offload_am_message_t *message, ch3_offload_am_reader_t *arguments)
{
    ch3_offload_am_arguments_t result;
    ch3_offload_am_name_t name;
    (void) context;
    (void) arguments;
    MUST(ch3_offload_am_name(picture, &name));
    ch3_offload_am_begin(&result);
    ch3_offload_am_append_name(&result, &name);
    MUST(ch3_offload_am_reply(message, "there", &result));
}

static void finish(void *context, ch3_offload_am_message_t *message, ch3_offload_am_reader_t *arguments)
{
    (void) context;
    (void) message;
    (void) arguments;
    is_finished = 1;
}

static void serve(int is_mapped)
{
    unsigned char *pixels, *own = calloc(1, kPictureBytes);

    MUST(ch3_offload_am_register(am, "set", set, NULL));
    MUST(ch3_offload_am_register(am, "sum", sum, NULL));
    MUST(ch3_offload_am_register(am, "where", where, NULL));
    MUST(ch3_offload_am_register(am, "finish", finish, NULL));
    if (is_mapped)
        MUST(ch3_offload_am_allocate(am, kPictureBytes, &picture));
    else
        MUST(ch3_offload_am_expose(am, own, kPictureBytes, &picture));
    while (!is_finished)
        poll_once();
    pixels = ch3_offload_am_memory(picture);
    for (int i = 0; i < kPictureBytes; i++)
        must(pixels[i] == (unsigned char) (i * 7), "picture");
    MUST(ch3_offload_am_flush(am, 10000));
    while (ch3_offload_am_free(picture) == CH3_OFFLOAD_AM_AGAIN)
        poll_once();
    free(own);
}

/* ---- The client ---- */

static double result_value;
static int has_result, has_picture, is_put, is_server_gone;
static ch3_offload_am_name_t picture_name;

static void result(void *context, ch3_offload_am_message_t *message, ch3_offload_am_reader_t *arguments)
{
    (void) context;
    (void) message;
    MUST(ch3_offload_am_read_double(arguments, &result_value));
    has_result = 1;
}

static void there(void *context, ch3_offload_am_message_t *message, ch3_offload_am_reader_t *arguments)
{
    (void) context;
    (void) message;
    MUST(ch3_offload_am_read_name(arguments, &picture_name));
    has_picture = 1;
}

static void put_done(void *context, int code)
{
    (void) context;
    MUST(code);
    is_put = 1;
}

static void failed(void *context, ch3_offload_am_peer_t *peer, int code, uint64_t function)
{
    (void) context;
    (void) peer;
    (void) function;
    must(code == CH3_OFFLOAD_AM_PEER_DEAD, "no function is unknown");
    is_server_gone = 1;
}

static void ask(ch3_offload_am_peer_t *server, int is_mapped)
{
    ch3_offload_am_arguments_t arguments;
    ch3_offload_am_remote_t *remote;
    unsigned char *pixels;

    MUST(ch3_offload_am_register(am, "there", there, NULL));
    MUST(ch3_offload_am_register(am, "result", result, NULL));
    for (uint32_t i = 0; i < kValues; i++) {
        ch3_offload_am_begin(&arguments);
        ch3_offload_am_append_u32(&arguments, i);
        ch3_offload_am_append_double(&arguments, i / 2.0);
        send_message(server, "set", &arguments);
    }
    send_message(server, "sum", NULL);  /* it is handled after them */
    send_message(server, "where", NULL);
    while (!has_result || !has_picture)
        poll_once();
    must(result_value == kValues * (kValues - 1) / 4.0, "sum");

    MUST(ch3_offload_am_attach(am, &picture_name, &remote));
    pixels = ch3_offload_am_mapped(remote);
    must((pixels != NULL) == is_mapped, "mapped");
    if (!is_mapped)
        pixels = malloc(kPictureBytes);
    for (int i = 0; i < kPictureBytes; i++)
        pixels[i] = (unsigned char) (i * 7);
    if (!is_mapped) {
        MUST(ch3_offload_am_put(remote, 0, pixels, kPictureBytes, put_done, NULL));
        while (!is_put)
            poll_once();
        free(pixels);
    }
    send_message(server, "finish", NULL);
    /* Who waits and sends nothing asks whether the other still lives. */
    while (!is_server_gone) {
        must(ch3_offload_am_check(server) != CH3_OFFLOAD_AM_INVALID, "check");
        must(ch3_offload_am_poll(am, 100) <= CH3_OFFLOAD_AM_AGAIN, "poll");
    }
    MUST(ch3_offload_am_detach(remote));
}

int main(int argc, char **argv)
{
    int is_mapped = argc < 2 || strcmp(argv[1], "put") != 0;
    int sockets[2], status = 0;
    ch3_offload_am_address_t address;
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || (child = fork()) < 0) {
        perror("active_messages");
        return 1;
    }
    process = child == 0 ? "server" : "client";
    MUST(ch3_offload_am_open(failed, NULL, &am));
    if (child == 0) {
        MUST(ch3_offload_am_address(am, &address));
        must(write(sockets[0], &address, sizeof address) == sizeof address, "write");
        serve(is_mapped);
    } else {
        ch3_offload_am_peer_t *server;
        must(read(sockets[1], &address, sizeof address) == sizeof address, "read");
        MUST(ch3_offload_am_find_peer(am, &address, &server));
        ask(server, is_mapped);
    }
    while (ch3_offload_am_close(am) == CH3_OFFLOAD_AM_AGAIN) {
    }
    if (child == 0)
        return 0;
    waitpid(child, &status, 0);
    must(status == 0, "server");
    puts("done");
    return 0;
}

/* Active messages between two processes, one of which does not behave: the argument says how.
 *
 * killed      the other one is killed while messages and answers are under way: its death is told once, and no call hangs
 * stopped     the other one is stopped: a sender hears that there is no room, and all messages arrive when it goes on
 * stranger    a process of another user is not heard, and takes the endpoint for dead (as root only)
 */

#define _GNU_SOURCE
#include <ch3_offload_am.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kMessages = 2000, kNobody = 65534 };

static ch3_offload_am_t *am;
static ch3_offload_am_peer_t *peer;
static int deaths, answers, handled;

static void must(int is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "%d: %s\n", (int) getpid(), what);
    exit(1);
}

static void failed(void *context, ch3_offload_am_peer_t *its, int code, uint64_t function)
{
    (void) context;
    must(its == peer && code == CH3_OFFLOAD_AM_PEER_DEAD && function == 0, "no other failure");
    deaths++;
}

static void question(void *context, ch3_offload_am_message_t *message, ch3_offload_am_reader_t *arguments)
{
    uint32_t number;
    (void) context;
    must(ch3_offload_am_read_u32(arguments, &number) == CH3_OFFLOAD_AM_OK && number == (uint32_t) handled, "in order");
    handled++;
    must(ch3_offload_am_reply(message, "answer", NULL) == CH3_OFFLOAD_AM_OK, "reply");
}

static void answer(void *context, ch3_offload_am_message_t *message, ch3_offload_am_reader_t *arguments)
{
    (void) context;
    (void) message;
    (void) arguments;
    answers++;
}

static int ask(uint32_t number)
{
    ch3_offload_am_arguments_t arguments;
    ch3_offload_am_begin(&arguments);
    ch3_offload_am_append_u32(&arguments, number);
    return ch3_offload_am_send(peer, "question", &arguments);
}

static void poll_for(int ms)
{
    must(ch3_offload_am_poll(am, ms) <= CH3_OFFLOAD_AM_AGAIN, "poll");
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    int is_stranger = strcmp(how, "stranger") == 0, is_stopped = strcmp(how, "stopped") == 0;
    int sockets[2], code = CH3_OFFLOAD_AM_OK, sent = 0, refusals = 0;
    ch3_offload_am_address_t address;
    pid_t child;
    char byte;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || (child = fork()) < 0) {
        perror("am_peers");
        return 1;
    }
    if (child == 0 && is_stranger) {
        must(setresgid(kNobody, kNobody, kNobody) == 0 && setresuid(kNobody, kNobody, kNobody) == 0, "setresuid");
        /* As a process that the user has started: it may be read by his network processor. */
        must(prctl(PR_SET_DUMPABLE, 1) == 0, "prctl");
    }
    must(ch3_offload_am_open(failed, NULL, &am) == CH3_OFFLOAD_AM_OK, "open");
    must(ch3_offload_am_address(am, &address) == CH3_OFFLOAD_AM_OK, "address");
    must(write(sockets[child > 0], &address, sizeof address) == sizeof address, "write");
    must(read(sockets[child > 0], &address, sizeof address) == sizeof address, "read");
    must(ch3_offload_am_find_peer(am, &address, &peer) == CH3_OFFLOAD_AM_OK, "find_peer");
    must(ch3_offload_am_register(am, "question", question, NULL) == CH3_OFFLOAD_AM_OK, "register");
    must(ch3_offload_am_register(am, "answer", answer, NULL) == CH3_OFFLOAD_AM_OK, "register");

    if (is_stranger) {
        /* Both ask, and neither hears. */
        while (deaths == 0) {
            ask(0);
            poll_for(10);
        }
        must(handled == 0, "a stranger was heard");
        must(write(sockets[child > 0], "", 1) == 1 && read(sockets[child > 0], &byte, 1) == 1, "meet");
    } else if (child == 0) {
        for (;;)
            poll_for(-1);
    } else {
        while (answers < 100) {
            if (ask((uint32_t) sent) == CH3_OFFLOAD_AM_OK)
                sent++;
            poll_for(0);
        }
        kill(child, is_stopped ? SIGSTOP : SIGKILL);
        while (is_stopped ? refusals < 100 : deaths == 0) {
            code = ask((uint32_t) sent);
            if (code == CH3_OFFLOAD_AM_OK)
                sent++;
            else if (code == CH3_OFFLOAD_AM_AGAIN)
                refusals++;
            poll_for(1);
        }
        if (is_stopped) {
            must(ch3_offload_am_flush(am, 20) == CH3_OFFLOAD_AM_AGAIN, "not all is taken");
            kill(child, SIGCONT);
            while (sent < kMessages) {
                if (ask((uint32_t) sent) == CH3_OFFLOAD_AM_OK)
                    sent++;
                poll_for(0);
            }
            while (answers < sent)
                poll_for(1000);
            must(ch3_offload_am_flush(am, 10000) == CH3_OFFLOAD_AM_OK && deaths == 0, "all is taken");
            kill(child, SIGKILL);
        } else {
            must(ask(0) == CH3_OFFLOAD_AM_PEER_DEAD && ch3_offload_am_check(peer) == CH3_OFFLOAD_AM_PEER_DEAD, "dead");
            must(ch3_offload_am_flush(am, 10000) == CH3_OFFLOAD_AM_OK, "nothing is left");
            must(deaths == 1, "told once");
        }
    }
    while ((code = ch3_offload_am_close(am)) == CH3_OFFLOAD_AM_AGAIN) {
    }
    must(code == CH3_OFFLOAD_AM_OK, "close");
    if (child == 0)
        return 0;
    waitpid(child, &code, 0);
    must(is_stranger ? code == 0 : WIFSIGNALED(code), "the other process");
    puts("done");
    return 0;
}

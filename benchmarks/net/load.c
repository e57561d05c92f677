/* The load generator: an epoll client in C, so that the server is what is measured.
 *
 *   load pingpong PORT CONNECTIONS SIZE SECONDS   each connection sends SIZE bytes and waits until they are back
 *   load stream PORT SIZE IN_FLIGHT SECONDS       one connection writes SIZE bytes while IN_FLIGHT are not yet back
 *   load sink PORT SECONDS                        one connection reads what the server sends
 *   load idle PORT CONNECTIONS                    opens connections and holds them until its input ends
 *
 * It speaks to 127.0.0.1 and prints one line of JSON. In both directions byte i of a connection is i % 100, and
 * what comes is compared: bytes that are wrong, a connection that ends early and a server that says nothing for
 * SILENCE seconds each end the run with exit code 1 and a reason. Wrong arguments end it with exit code 2.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum {
    PERIOD = 100,          /* of the bytes; also the size of one element of a source */
    LARGEST = 1 << 20,     /* write */
    READ = 1 << 18,        /* at most, at once */
    CHECKED = 1 << 12,     /* bytes compared of each read: enough to notice a shift, too few to be the bottleneck */
    GREETING = 111,        /* bytes sent and awaited on a new connection, which shows that it was accepted; */
                           /* the last of them is a newline, so that a server of lines answers all of them */
    SILENCE = 10,          /* seconds */
    EVENTS = 256,
    SLOWEST = 1 << 17,     /* microseconds; round trips that take longer count as this long */
};

typedef struct {
    int socket;
    bool wants_to_write;
    size_t unsent; /* of the write that the kernel took only a part of */
    uint64_t sent, received;
    double sent_at;
} Connection;

static unsigned char pattern[LARGEST + PERIOD];
static unsigned char incoming[READ];

__attribute__((noreturn, format(printf, 2, 3))) static void fail(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(code);
}

static double now(void) {
    struct timespec time;
    if (clock_gettime(CLOCK_MONOTONIC, &time) != 0) fail(1, "clock_gettime: %s", strerror(errno));
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static long whole(const char *text, const char *name, long least, long most) {
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || number < least || number > most)
        fail(2, "%s must be a number from %ld to %ld, not \"%s\"", name, least, most, text);
    return number;
}

static double seconds_of(const char *text) {
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    if (errno != 0 || end == text || *end != '\0' || !(number > 0 && number <= 3600))
        fail(2, "SECONDS must be more than 0 and at most 3600, not \"%s\"", text);
    return number;
}

static void check(Connection *connection, const unsigned char *bytes, size_t count) {
    size_t compared = count < CHECKED ? count : CHECKED;
    if (memcmp(bytes, pattern + connection->received % PERIOD, compared) != 0)
        fail(1, "what came after %llu bytes is not what it should be", (unsigned long long)connection->received);
    connection->received += count;
}

static void allow_open_files(long connections) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) fail(1, "getrlimit: %s", strerror(errno));
    rlim_t needed = (rlim_t)connections + 16;
    if (limit.rlim_cur >= needed) return;
    if (limit.rlim_max < needed)
        fail(1, "%ld connections need more open files than the %llu allowed: raise `ulimit -n`", connections,
             (unsigned long long)limit.rlim_max);
    limit.rlim_cur = needed;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) fail(1, "setrlimit: %s", strerror(errno));
}

static void set_option(int socket, int level, int option, const void *value, socklen_t size) {
    if (setsockopt(socket, level, option, value, size) != 0) fail(1, "setsockopt: %s", strerror(errno));
}

/* Connect and wait for an echo, both blocking. */
static void greet(Connection *connection) {
    if (send(connection->socket, pattern, GREETING, MSG_NOSIGNAL) != GREETING)
        fail(1, "a new connection took no %d bytes: %s", GREETING, strerror(errno));
    connection->sent = GREETING;
    while (connection->received < connection->sent) {
        ssize_t count = recv(connection->socket, incoming, GREETING, 0);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0)
            fail(1, "no answer on a new connection: %s", errno == EAGAIN ? "time is up" : strerror(errno));
        if (count == 0) fail(1, "the server closed a new connection");
        check(connection, incoming, (size_t)count);
    }
}

static void open_connection(Connection *connection, int port, bool greeted) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int number = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (number < 0) fail(1, "socket: %s", strerror(errno));
    connection->socket = number;
    struct timeval patience = {.tv_sec = SILENCE};
    set_option(number, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    set_option(number, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    int yes = 1;
    set_option(number, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(number, (struct sockaddr *)&address, sizeof address) != 0)
        fail(1, "cannot connect to port %d: %s", port, strerror(errno));
    if (greeted) greet(connection);
    int flags = fcntl(number, F_GETFL);
    if (flags < 0 || fcntl(number, F_SETFL, flags | O_NONBLOCK) != 0) fail(1, "fcntl: %s", strerror(errno));
}

static Connection *open_connections(int port, long number, bool greeted) {
    allow_open_files(number);
    Connection *connections = calloc((size_t)number, sizeof *connections);
    if (connections == NULL) fail(1, "no memory for %ld connections", number);
    for (long i = 0; i < number; i++) open_connection(&connections[i], port, greeted);
    return connections;
}

static void watch(int poller, int operation, Connection *connection) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (connection->wants_to_write) event.events |= EPOLLOUT;
    if (epoll_ctl(poller, operation, connection->socket, &event) != 0) fail(1, "epoll_ctl: %s", strerror(errno));
}

static int poller_for(Connection *connections, long number) {
    int poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0) fail(1, "epoll_create1: %s", strerror(errno));
    for (long i = 0; i < number; i++) watch(poller, EPOLL_CTL_ADD, &connections[i]);
    return poller;
}

/* What is ready, after at most SILENCE seconds. */
static int ready(int poller, struct epoll_event *events) {
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS, SILENCE * 1000);
        if (count > 0) return count;
        if (count == 0) fail(1, "the server said nothing for %d s", SILENCE);
        if (errno != EINTR) fail(1, "epoll_wait: %s", strerror(errno));
    }
}

/* How many bytes came; 0 if there were none after all. */
static size_t read_some(Connection *connection) {
    ssize_t count = recv(connection->socket, incoming, READ, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (count < 0) fail(1, "recv: %s", strerror(errno));
    if (count == 0)
        fail(1, "the server closed a connection after %llu bytes", (unsigned long long)connection->received);
    check(connection, incoming, (size_t)count);
    return (size_t)count;
}

/* Write until as much is in flight as may be, or the kernel takes no more. */
static void write_more(int poller, Connection *connection, size_t size, size_t in_flight, bool stopping) {
    bool full = false;
    while (!full) {
        if (connection->unsent == 0) {
            if (stopping || connection->sent - connection->received + size > in_flight) break;
            connection->unsent = size;
        }
        ssize_t count =
            send(connection->socket, pattern + connection->sent % PERIOD, connection->unsent, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno != EAGAIN) fail(1, "send: %s", strerror(errno));
        full = count < 0;
        if (full) continue;
        connection->sent += (uint64_t)count;
        connection->unsent -= (size_t)count;
    }
    if (full != connection->wants_to_write) {
        connection->wants_to_write = full;
        watch(poller, EPOLL_CTL_MOD, connection);
    }
}

static bool all_back(const Connection *connection) {
    return connection->received == connection->sent && connection->unsent == 0;
}

static double percentile(const uint32_t *histogram, uint64_t count, double part) {
    uint64_t below = 0;
    for (int microseconds = 0; microseconds < SLOWEST; microseconds++) {
        below += histogram[microseconds];
        if ((double)below >= part * (double)count) return microseconds;
    }
    return SLOWEST;
}

static void echo(int port, long number, size_t size, size_t in_flight, double seconds) {
    static uint32_t histogram[SLOWEST];
    Connection *connections = open_connections(port, number, true);
    int poller = poller_for(connections, number);
    bool one_by_one = in_flight == size, counting = false, stopping = false;
    uint64_t bytes = 0, measured = 0;
    double began = now(), warm = began + seconds / 5, end = 0, ended = 0;
    long busy = number;
    for (long i = 0; i < number; i++) {
        connections[i].sent_at = began;
        write_more(poller, &connections[i], size, in_flight, false);
    }
    while (busy > 0) {
        struct epoll_event events[EVENTS];
        int count = ready(poller, events);
        double moment = now();
        if (!counting && moment >= warm) {
            counting = true;
            began = moment;
            end = began + seconds;
            bytes = 0;
        }
        if (counting && !stopping && moment >= end) {
            stopping = true;
            ended = moment;
            for (long i = 0; i < number; i++) busy -= all_back(&connections[i]);
        }
        for (int i = 0; i < count; i++) {
            Connection *connection = events[i].data.ptr;
            size_t came = read_some(connection);
            if (!stopping) bytes += came;
            bool complete = came > 0 && all_back(connection);
            if (one_by_one && complete && counting && !stopping) {
                double taken = (now() - connection->sent_at) * 1e6;
                histogram[taken < SLOWEST ? (int)taken : SLOWEST - 1]++;
                measured++;
            }
            if (stopping && complete) busy--;
            if (one_by_one && complete) connection->sent_at = now();
            write_more(poller, connection, size, in_flight, stopping);
        }
    }
    double taken = ended - began;
    printf("{\"round_trips\": %.2f, \"bytes\": %llu, \"seconds\": %.6f", (double)bytes / (double)size,
           (unsigned long long)bytes, taken);
    if (one_by_one)
        printf(", \"p50_us\": %.0f, \"p99_us\": %.0f", percentile(histogram, measured, 0.5),
               percentile(histogram, measured, 0.99));
    printf("}\n");
}

static void sink(int port, double seconds) {
    Connection *connection = open_connections(port, 1, false);
    int poller = poller_for(connection, 1);
    bool counting = false;
    uint64_t bytes = 0;
    double began = now(), warm = began + seconds / 5, end = 0, moment = began;
    while (!counting || moment < end) {
        struct epoll_event events[EVENTS];
        ready(poller, events);
        moment = now();
        if (!counting && moment >= warm) {
            counting = true;
            began = moment;
            end = began + seconds;
            bytes = 0;
        }
        bytes += read_some(connection);
    }
    printf("{\"bytes\": %llu, \"seconds\": %.6f}\n", (unsigned long long)bytes, now() - began);
}

static void idle(int port, long number) {
    double began = now();
    Connection *connections = open_connections(port, number, true);
    printf("{\"connections\": %ld, \"seconds\": %.6f}\n", number, now() - began);
    if (fflush(stdout) != 0) fail(1, "cannot write: %s", strerror(errno));
    for (;;) {
        char byte;
        ssize_t count = read(STDIN_FILENO, &byte, 1);
        if (count == 0) break;
        if (count < 0 && errno != EINTR) fail(1, "cannot read the input: %s", strerror(errno));
    }
    for (long i = 0; i < number; i++) {
        ssize_t count = recv(connections[i].socket, incoming, READ, 0);
        if (count >= 0 || errno != EAGAIN) fail(1, "connection %ld was not left alone", i);
    }
}

int main(int count, char **arguments) {
    for (size_t i = 0; i < sizeof pattern; i++) pattern[i] = (unsigned char)(i % PERIOD);
    const char *mode = count > 1 ? arguments[1] : "";
    int port = count > 2 ? (int)whole(arguments[2], "PORT", 1, 65535) : 0;
    if (strcmp(mode, "pingpong") == 0 && count == 6) {
        size_t size = (size_t)whole(arguments[4], "SIZE", 1, LARGEST);
        echo(port, whole(arguments[3], "CONNECTIONS", 1, 100000), size, size, seconds_of(arguments[5]));
    } else if (strcmp(mode, "stream") == 0 && count == 6) {
        long size = whole(arguments[3], "SIZE", 1, LARGEST);
        size_t in_flight = (size_t)whole(arguments[4], "IN_FLIGHT", size, 1L << 30);
        echo(port, 1, (size_t)size, in_flight, seconds_of(arguments[5]));
    } else if (strcmp(mode, "sink") == 0 && count == 4) {
        sink(port, seconds_of(arguments[3]));
    } else if (strcmp(mode, "idle") == 0 && count == 4) {
        idle(port, whole(arguments[3], "CONNECTIONS", 1, 100000));
    } else {
        fail(2, "usage: load pingpong PORT CONNECTIONS SIZE SECONDS | stream PORT SIZE IN_FLIGHT SECONDS"
                " | sink PORT SECONDS | idle PORT CONNECTIONS");
    }
    if (fflush(stdout) != 0) fail(1, "cannot write: %s", strerror(errno));
    return 0;
}

/* Forwards TCP connections to one destination, on one thread, with the sockets of wasi-libc. The C counterpart
 * of examples/forward. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* wasi-libc has these for WASI 0.2. Headers of versions before it leave them out. */
struct addrinfo {
    int ai_flags, ai_family, ai_socktype, ai_protocol;
    socklen_t ai_addrlen;
    struct sockaddr *ai_addr;
    char *ai_canonname;
    struct addrinfo *ai_next;
};
int getaddrinfo(const char *, const char *, const struct addrinfo *, struct addrinfo **);
void freeaddrinfo(struct addrinfo *);
int socket(int, int, int);
int bind(int, const struct sockaddr *, socklen_t);
int listen(int, int);
int connect(int, const struct sockaddr *, socklen_t);

enum { CLIENTS = 64, CHUNK = 16 << 10 };

/* One direction of a connection: what was read and is not yet written, and whether the end was read. */
struct direction {
    char data[CHUNK];
    size_t begin, end;
    int ended;
};

/* A client with its connection to the destination. */
struct connection {
    int client, server;
    struct direction up, down;
};

static struct connection *open_connections[CLIENTS];

/* Resolves HOST:PORT. Returns NULL, after a message, if it cannot. */
static struct addrinfo *resolve(const char *text) {
    char host[256];
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    if (length == 0 || length >= sizeof host) {
        fprintf(stderr, "%s: must be HOST:PORT\n", text);
        return NULL;
    }
    memcpy(host, text, length);
    host[length] = '\0';
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0) {
        fprintf(stderr, "%s: has no address\n", text);
        return NULL;
    }
    return found;
}

static int set_nonblocking(int socket) {
    int on = 1;
    return ioctl(socket, FIONBIO, &on);
}

static void close_connection(struct connection **slot) {
    close((*slot)->client);
    close((*slot)->server);
    free(*slot);
    *slot = NULL;
}

/* Accepts a client, if there is a place for it, and connects it. */
static void accept_client(int listener, const char *destination) {
    int place = 0;
    while (place < CLIENTS && open_connections[place]) place++;
    int client = accept(listener, NULL, NULL);
    if (client < 0) return;
    struct connection *made = place < CLIENTS ? calloc(1, sizeof *made) : NULL;
    struct addrinfo *to = made ? resolve(destination) : NULL;
    int server = to ? socket(AF_INET, SOCK_STREAM, 0) : -1;
    if (server < 0 || connect(server, to->ai_addr, to->ai_addrlen) != 0 || set_nonblocking(client) != 0 ||
        set_nonblocking(server) != 0) {
        fprintf(stderr, "%s: %s\n", destination, strerror(errno));
        if (server >= 0) close(server);
        close(client);
        free(made);
    } else {
        made->client = client;
        made->server = server;
        open_connections[place] = made;
    }
    if (to) freeaddrinfo(to);
}

/* Passes on what is there. Returns -1 if a connection has failed. */
static int pass(struct direction *it, int from, int to) {
    if (it->begin == it->end && !it->ended) {
        ssize_t count = recv(from, it->data, CHUNK, 0);
        if (count < 0) return errno == EAGAIN ? 0 : -1;
        it->begin = 0;
        it->end = (size_t)count;
        it->ended = count == 0;
        if (it->ended) return shutdown(to, SHUT_WR);
    }
    if (it->begin < it->end) {
        ssize_t count = send(to, it->data + it->begin, it->end - it->begin, 0);
        if (count < 0) return errno == EAGAIN ? 0 : -1;
        it->begin += (size_t)count;
    }
    return 0;
}

/* Returns the events that one end waits for: room for what goes there, and bytes that come from it. */
static short events(const struct direction *there, const struct direction *from) {
    short wanted = there->begin < there->end ? POLLOUT : 0;
    return wanted | (from->begin == from->end && !from->ended ? POLLIN : 0);
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: forward LISTEN DESTINATION\n");
        return 1;
    }
    struct addrinfo *at = resolve(arguments[1]);
    int listener = at ? socket(AF_INET, SOCK_STREAM, 0) : -1;
    if (listener < 0 || bind(listener, at->ai_addr, at->ai_addrlen) != 0 || listen(listener, 16) != 0) {
        fprintf(stderr, "%s: %s\n", arguments[1], strerror(errno));
        return 1;
    }
    freeaddrinfo(at);
    printf("forwards to %s\n", arguments[2]);
    fflush(stdout);
    for (;;) {
        struct pollfd waits[1 + 2 * CLIENTS] = {{.fd = listener, .events = POLLIN}};
        nfds_t number = 1;
        for (int place = 0; place < CLIENTS; place++) {
            struct connection *it = open_connections[place];
            if (!it) continue;
            short client = events(&it->down, &it->up), server = events(&it->up, &it->down);
            if (client) waits[number++] = (struct pollfd){.fd = it->client, .events = client};
            if (server) waits[number++] = (struct pollfd){.fd = it->server, .events = server};
        }
        if (poll(waits, number, -1) < 0) {
            fprintf(stderr, "poll: %s\n", strerror(errno));
            return 1;
        }
        for (int place = 0; place < CLIENTS; place++) {
            struct connection *it = open_connections[place];
            if (!it) continue;
            int failed = pass(&it->up, it->client, it->server) | pass(&it->down, it->server, it->client);
            int over = it->up.ended && it->down.ended && it->up.begin == it->up.end && it->down.begin == it->down.end;
            if (failed || over) close_connection(&open_connections[place]);
        }
        if (waits[0].revents & POLLIN) accept_client(listener, arguments[2]);
    }
}

/* NAME: a transport for WATER v1, in C without a library. It carries a stream over another one, with
   its bytes masked. A starting point: put your own protocol in place of `mask`.

   The host calls an instance for each connection: `watm_init_v1`, the function of the role, then
   `watm_ctrlpipe_v1`, then `watm_start_v1`, which returns when the connection has ended. Numbers
   below 0 are errors of WASI, with a minus. */

#include <stdbool.h>
#include <stdint.h>

#define WASI(name) __attribute__((import_module("wasi_snapshot_preview1"), import_name(#name)))
#define ENV(name) __attribute__((import_module("env"), import_name(#name)))
#define EXPORT(name) __attribute__((export_name(#name)))

/* The description of the module, by which hosts name it: the section `watm.about`. */
#define TEXT(json) #json
#define ABOUT(json) __asm__(".section .custom_section.watm.about,\"\",@\n.ascii " json "\n")
ABOUT(TEXT("{\"about\": 1, \"name\": \"NAME\", \"title\": \"NAME\","
           " \"summary\": \"Carries a stream over another one, with its bytes masked.\","
           " \"accepts\": true, \"dials\": true, \"destinations\": false,"
           " \"sockets\": [{\"label\": \"listen\", \"transport\": \"tcp\"}]}"));

/* Errors of WASI. */
enum { AGAIN = 6, CANCELED = 11, INTERRUPTED = 27, NOT_CONNECTED = 53, PIPE = 64 };

typedef struct { uint8_t *data; uint32_t size; } Part;
typedef struct { uint64_t name; uint8_t kind; uint8_t pad[7]; uint32_t fd; uint8_t rest[28]; } Subscription;
typedef struct { uint64_t name; uint8_t rest[24]; } Event;
enum { READABLE = 1, WRITABLE = 2 };

WASI(fd_read) int fd_read(int fd, const Part *parts, int count, uint32_t *size);
WASI(fd_write) int fd_write(int fd, const Part *parts, int count, uint32_t *size);
WASI(fd_fdstat_set_flags) int fd_set_flags(int fd, int flags);
WASI(sock_shutdown) int sock_shutdown(int fd, int how);
WASI(poll_oneoff) int poll_oneoff(const Subscription *wanted, Event *happened, int count, uint32_t *size);
ENV(water_dial_fixed) int water_dial_fixed(void);
ENV(water_accept) int water_accept(void);

enum { NONBLOCK = 4, WRITING = 2 };

/* One direction of the connection. */
typedef struct {
    int from, to;
    int8_t sign;      /* 1 masks, -1 unmasks. */
    uint8_t number;   /* The last number of the mask. */
    bool ended;       /* `from` has ended, and `to` knows. */
    uint32_t begin, end; /* The bytes of `data` that are not written yet. */
    uint8_t data[16384];
} Way;

static Way outward, inward;
static int control = -1;
static int failed; /* The error of a relay whose upstream is not there. */

/* Adds a number to each byte, another one each time, or subtracts it. */
static void mask(Way *way) {
    for (uint32_t at = way->begin; at < way->end; at++) {
        way->number += 7;
        way->data[at] += way->sign * way->number;
    }
}

/* Moves a bounded number of pieces. Returns 0, or the error that ends the connection. */
static int move(Way *way) {
    for (int pieces = 0; pieces < 16 && !way->ended; pieces++) {
        uint32_t size = 0;
        if (way->begin < way->end) {
            Part part = {way->data + way->begin, way->end - way->begin};
            int error = fd_write(way->to, &part, 1, &size);
            if (error) return error == AGAIN ? 0 : error;
            way->begin += size;
            continue;
        }
        Part part = {way->data, sizeof way->data};
        int error = fd_read(way->from, &part, 1, &size);
        if (error) return error == AGAIN ? 0 : error;
        if (size == 0) {
            way->ended = true;
            return sock_shutdown(way->to, WRITING);
        }
        way->begin = 0;
        way->end = size;
        mask(way);
    }
    return 0;
}

static Subscription wish(uint64_t name, int fd, int kind) {
    Subscription wish = {.name = name, .kind = kind, .fd = fd};
    return wish;
}

/* Waits for the control pipe or a direction. Returns 0, CANCELED, or another error. */
static int wait(void) {
    Subscription wanted[3];
    Event happened[3];
    int count = 0;
    wanted[count++] = wish(0, control, READABLE);
    Way *ways[] = {&outward, &inward};
    for (int at = 0; at < 2; at++) {
        Way *way = ways[at];
        bool writes = way->begin < way->end;
        if (!way->ended) wanted[count++] = wish(1, writes ? way->to : way->from, writes ? WRITABLE : READABLE);
    }
    uint32_t size = 0;
    int error;
    do error = poll_oneoff(wanted, happened, count, &size); while (error == INTERRUPTED);
    if (error) return error;
    for (uint32_t at = 0; at < size; at++)
        if (happened[at].name == 0) return CANCELED;
    return 0;
}

/* Notes both ends of the connection. Returns `network`, which may be an error. */
static int connect(int application, int network) {
    if (network < 0) return network;
    outward.from = inward.to = application;
    outward.to = inward.from = network;
    outward.sign = 1;
    inward.sign = -1;
    return network;
}

EXPORT(watm_init_v1) int init(void) { return 0; }

EXPORT(watm_dial_v1) int dial(int application) { return connect(application, water_dial_fixed()); }

EXPORT(watm_accept_v1) int accept(int application) { return connect(application, water_accept()); }

EXPORT(watm_associate_v1) int associate(void) {
    int application = water_accept();
    if (application < 0) return application;
    /* A host written in Go ends the whole relay if this function fails. */
    int network = connect(application, water_dial_fixed());
    failed = network < 0 ? network : 0;
    return 0;
}

EXPORT(watm_ctrlpipe_v1) int ctrlpipe(int fd) {
    control = fd;
    return 0;
}

EXPORT(watm_start_v1) int start(void) {
    if (failed) return failed;
    if (!outward.sign) return -NOT_CONNECTED;
    fd_set_flags(outward.from, NONBLOCK);
    fd_set_flags(outward.to, NONBLOCK);
    for (;;) {
        int error = move(&outward);
        if (!error) error = move(&inward);
        if (!error && outward.ended && inward.ended) error = PIPE; /* The end of both. */
        if (!error) error = wait();
        if (error == CANCELED) move(&outward); /* What the application wrote before it left. */
        if (error) return -error;
    }
}

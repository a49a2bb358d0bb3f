/* Sends small UDP datagrams as fast as one core can, from several network namespaces in turn.
 *
 * usage: net_sender ADDRESS PORT PAYLOAD_BYTES ROUNDS SLICES SLICE_MICROSECONDS CORE NAMESPACE...
 * A round is SLICES slices in each namespace, in turn, so that what disturbs the machine disturbs all alike.
 * prints a line for each round and namespace: NAMESPACE_NUMBER PACKETS NANOSECONDS (processor time) */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 64, LARGEST_BYTES = 1400, MOST_NAMESPACES = 64, FIXED_WORDS = 8 };

static struct mmsghdr messages[BATCH];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static long long used_nanoseconds(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1000000000LL + used.tv_nsec;
}

/* A socket keeps the namespace that it was made in. */
static int connected(const char *path, const char *address, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int namespace = open(path, O_RDONLY | O_CLOEXEC);
    if (namespace < 0 || setns(namespace, CLONE_NEWNET))
        fail(path);
    close(namespace);
    int descriptor = socket(AF_INET, SOCK_DGRAM, 0);
    if (descriptor < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1 ||
        connect(descriptor, (struct sockaddr *)&to, sizeof to))
        fail(address);
    return descriptor;
}

/* Ahead of what else wants this core, so that a slice measures packets. */
static void take_core(int core)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) || setpriority(PRIO_PROCESS, 0, -20))
        fail("net_sender");
}

static void send_slice(int descriptor, long long slice_nanoseconds, long long *packets, long long *nanoseconds)
{
    long long began = used_nanoseconds(), now = began;
    while (now < began + slice_nanoseconds) {
        int done = sendmmsg(descriptor, messages, BATCH, 0);
        if (done < 0)
            fail("sendmmsg");
        *packets += done;
        now = used_nanoseconds();
    }
    *nanoseconds += now - began;
}

static void send_round(const int *sockets, int count, int slices, long long slice_nanoseconds)
{
    long long packets[MOST_NAMESPACES] = {0}, nanoseconds[MOST_NAMESPACES] = {0};
    for (int slice = 0; slice < slices; slice++)
        for (int i = 0; i < count; i++) {
            int at = (i + slice) % count;
            send_slice(sockets[at], slice_nanoseconds, &packets[at], &nanoseconds[at]);
        }
    for (int i = 0; i < count; i++)
        printf("%d %lld %lld\n", i, packets[i], nanoseconds[i]);
}

int main(int words, char **word)
{
    static char payload[LARGEST_BYTES];
    int sockets[MOST_NAMESPACES], count = words - FIXED_WORDS;
    if (count < 1 || count > MOST_NAMESPACES || atoi(word[3]) > LARGEST_BYTES)
        return 2;
    for (int i = 0; i < count; i++)
        sockets[i] = connected(word[FIXED_WORDS + i], word[1], atoi(word[2]));
    struct iovec part = {.iov_base = payload, .iov_len = (size_t)atoi(word[3])};
    for (int i = 0; i < BATCH; i++) {
        messages[i].msg_hdr.msg_iov = &part;
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    take_core(atoi(word[7]));
    for (int round = 0; round < atoi(word[4]); round++)
        send_round(sockets, count, atoi(word[5]), atoll(word[6]) * 1000);
    return 0;
}

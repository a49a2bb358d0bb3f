/* The keys of "gpu" and "nvlink" lines, each with its place in the struct. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fakenvml.h"

enum kind { TEXT, UNSIGNED, SIGNED, WIDE, COUNTER, STATE };

struct key {
    const char *name;
    enum kind kind;
    size_t offset;
};

#define GPU(name, kind, member) {name, kind, offsetof(struct gpu, member)}
#define LINK(name, kind, member) {name, kind, offsetof(struct link, member)}

static const struct key gpu_keys[] = {
#include "gpu_keys.inc"
};

static const struct key link_keys[] = {
    LINK("up", UNSIGNED, up),
    LINK("remote_type", UNSIGNED, remote_type),
    LINK("replay", COUNTER, replay),
    LINK("recovery", COUNTER, recovery),
    LINK("crc_flit", COUNTER, crc_flit),
    LINK("crc_data", COUNTER, crc_data),
    LINK("recovery_ok", COUNTER, recovery_ok),
    LINK("recovery_failed", COUNTER, recovery_failed),
    LINK("recovery_events", COUNTER, recovery_events),
    LINK("effective_errors", COUNTER, effective_errors),
    LINK("symbol_errors", COUNTER, symbol_errors),
    LINK("effective_ber", WIDE, effective_ber),
    LINK("symbol_ber", WIDE, symbol_ber),
};

static const char *const state_names[] = {"ok", "lost", "fallen_off_bus", "absent", "reset_required"};

/* The reason outlives the call and belongs to the thread that parses. */
static bool refuse(const char **why, const char *format, const char *what)
{
    static _Thread_local char reason[256];

    snprintf(reason, sizeof reason, format, what);
    *why = reason;
    return false;
}

static bool set_text(char *target, char **values, int count, const char **why)
{
    size_t length = 0;

    for (int i = 0; i < count; i++) {
        size_t added = strlen(values[i]) + (i ? 1 : 0);
        if (length + added >= TEXT_BYTES)
            return refuse(why, "the text from \"%s\" on is too long", values[i]);
        if (i)
            target[length] = ' ';
        strcpy(target + length + (i ? 1 : 0), values[i]);
        length += added;
    }
    return true;
}

static bool option_real(char **values, int count, const char *name, double *value)
{
    const char *text = find_option(values, count, name);
    char *end;

    if (!text)
        return true;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value) && *value >= 0;
}

static bool set_counter(struct counter *counter, char **values, int count, const char **why)
{
    struct counter fresh = {0, 0, 0};

    if (!parse_unsigned(values[0], &fresh.base) || !option_real(values, count, "rate", &fresh.per_second) ||
        !option_real(values, count, "since", &fresh.since_seconds))
        return refuse(why, "a counter takes NUMBER [rate=PER_SECOND since=MONOTONIC_SECONDS], not \"%s\"",
                      values[0]);
    *counter = fresh;
    return true;
}

static bool set_state(unsigned *state, const char *value, const char **why)
{
    for (unsigned i = 0; i < sizeof state_names / sizeof *state_names; i++)
        if (strcmp(value, state_names[i]) == 0) {
            *state = i;
            return true;
        }
    return refuse(why, "a state is ok, lost, fallen_off_bus, absent or reset_required, not \"%s\"", value);
}

static bool set_signed(int *target, const char *value, const char **why)
{
    char *end;
    long number = strtol(value, &end, 10);

    if (end == value || *end != '\0')
        return refuse(why, "\"%s\" is no whole number", value);
    *target = (int)number;
    return true;
}

static bool set_number(const struct key *key, void *place, const char *value, const char **why)
{
    uint64_t number = 0;

    if (strcmp(value, "yes") == 0 || strcmp(value, "on") == 0 || strcmp(value, "up") == 0)
        number = 1;
    else if (strcmp(value, "no") != 0 && strcmp(value, "off") != 0 && strcmp(value, "down") != 0 &&
             !parse_unsigned(value, &number))
        return refuse(why, "\"%s\" is neither a number nor yes or no", value);
    if (key->kind == WIDE)
        memcpy(place, &number, sizeof number);
    else
        *(unsigned *)place = (unsigned)number;
    return true;
}

static bool set_key(const struct key *keys, size_t key_count, void *base, const char *name,
                    char **values, int count, const char **why)
{
    const struct key *key = keys;
    char *place;

    while (key < keys + key_count && strcmp(key->name, name) != 0)
        key++;
    if (key == keys + key_count)
        return refuse(why, "unknown key \"%s\"", name);
    place = (char *)base + key->offset;
    switch (key->kind) {
    case TEXT:
        return set_text(place, values, count, why);
    case COUNTER:
        return set_counter((struct counter *)(void *)place, values, count, why);
    case STATE:
        return set_state((unsigned *)(void *)place, values[0], why);
    case SIGNED:
        return set_signed((int *)(void *)place, values[0], why);
    default:
        return set_number(key, place, values[0], why);
    }
}

bool set_gpu_key(struct gpu *gpu, const char *key, char **values, int count, const char **why)
{
    return set_key(gpu_keys, sizeof gpu_keys / sizeof *gpu_keys, gpu, key, values, count, why);
}

bool set_link_key(struct link *link, const char *key, char **values, int count, const char **why)
{
    return set_key(link_keys, sizeof link_keys / sizeof *link_keys, link, key, values, count, why);
}

uint64_t counter_value(const struct counter *counter)
{
    struct timespec now;
    double elapsed;

    if (counter->per_second <= 0)
        return counter->base;
    clock_gettime(CLOCK_MONOTONIC, &now);
    elapsed = (double)now.tv_sec + (double)now.tv_nsec / 1e9 - counter->since_seconds;
    return counter->base + (elapsed > 0 ? (uint64_t)(elapsed * counter->per_second) : 0);
}

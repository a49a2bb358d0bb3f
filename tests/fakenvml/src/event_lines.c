/* "event" and "system_event" lines. */
#include <string.h>

#include "fakenvml.h"

static const struct {
    const char *name;
    uint64_t type;
} event_names[] = {
    {"xid", EVENT_XID},
    {"sbe", EVENT_SBE},
    {"dbe", EVENT_DBE},
    {"mig", EVENT_MIG},
    {"sbe_storm", EVENT_SBE_STORM},
    {"dram_retirement", EVENT_DRAM_RETIREMENT},
    {"dram_retirement_failure", EVENT_DRAM_RETIREMENT_FAILURE},
    {"poison", EVENT_POISON_NON_FATAL},
    {"poison_fatal", EVENT_POISON_FATAL},
    {"unavailable", EVENT_UNAVAILABLE},
    {"recovery_action", EVENT_RECOVERY_ACTION},
};

static bool parse_type(const char *text, uint64_t *type)
{
    for (size_t i = 0; i < sizeof event_names / sizeof *event_names; i++)
        if (strcmp(text, event_names[i].name) == 0) {
            *type = event_names[i].type;
            return true;
        }
    return parse_unsigned(text, type);
}

static bool parse_system(struct event *event, const struct line *line, char **words, int count)
{
    uint64_t gpu_id = 0;

    if (count != 4 || !parse_unsigned(words[1], &event->id) || !parse_unsigned(words[3], &gpu_id) ||
        (strcmp(words[2], "unbind") != 0 && strcmp(words[2], "bind") != 0))
        return complain(line, "\"system_event\" takes ID, bind or unbind, and a GPU id");
    event->type = strcmp(words[2], "unbind") == 0 ? 1 : 2;
    event->data = gpu_id;
    return true;
}

bool parse_event(struct scenario *scenario, const struct line *line, char **words, int count)
{
    bool system = strcmp(words[0], "system_event") == 0;
    unsigned *filled = system ? &scenario->system_event_count : &scenario->event_count;
    struct event *event = &(system ? scenario->system_events : scenario->events)[*filled];
    uint64_t gi = NO_INSTANCE, ci = NO_INSTANCE;

    if (*filled == MAX_EVENTS)
        return complain(line, "there are at most %d events", MAX_EVENTS);
    if (system) {
        if (!parse_system(event, line, words, count))
            return false;
    } else if (count < 5 || !parse_unsigned(words[1], &event->id) || !event->id ||
               !parse_gpu_index(scenario, words[2], &event->gpu) || event->gpu == ALL_GPUS ||
               !parse_type(words[3], &event->type) || !parse_unsigned(words[4], &event->data) ||
               !option_unsigned(words, count, "gi", &gi) || !option_unsigned(words, count, "ci", &ci)) {
        return complain(line, "\"event\" takes ID GPU TYPE DATA [gi=N] [ci=N], and an ID from 1 on");
    }
    event->gpu_instance = (unsigned)gi;
    event->compute_instance = (unsigned)ci;
    ++*filled;
    return true;
}

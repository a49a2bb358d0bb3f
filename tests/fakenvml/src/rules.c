/*
 * "call" lines: a call can fail, wait or end the process before it is answered.
 *
 * Nothing is held while a call waits: each look takes the scenario anew.
 */
#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fakenvml.h"

enum { COUNTED_MAX = 32 };

/* One call on its way through the rules; a rule counts a call once. */
struct passage {
    const char *name;
    int gpu;
    uint64_t counted[COUNTED_MAX];
    bool acts[COUNTED_MAX];
    unsigned counted_count;
    int64_t started_ms;
};

static bool listed(const char *list, const char *name)
{
    char copy[sizeof((struct rule *)0)->except], *rest = NULL;

    strcpy(copy, list);
    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
        if (fnmatch(word, name, 0) == 0)
            return true;
    return false;
}

static bool matches(const struct rule *rule, const struct passage *passage)
{
    return (rule->gpu == ALL_GPUS || rule->gpu == passage->gpu) &&
           fnmatch(rule->pattern, passage->name, 0) == 0 && !listed(rule->except, passage->name);
}

static bool acts(const struct rule *rule, struct passage *passage)
{
    uint64_t nth;
    bool result;

    for (unsigned i = 0; i < passage->counted_count; i++)
        if (passage->counted[i] == rule->key)
            return passage->acts[i];
    nth = rule->node_wide ? count_on_node(rule->key) : count_in_process(rule->key);
    result = nth >= rule->from && (rule->times == 0 || nth < rule->from + rule->times);
    if (passage->counted_count < COUNTED_MAX) {
        passage->counted[passage->counted_count] = rule->key;
        passage->acts[passage->counted_count++] = result;
    }
    return result;
}

static void die(unsigned how)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};

    switch ((enum death)how) {
    case DEATH_SEGV:
        sigaction(SIGSEGV, &standard, NULL);
        raise(SIGSEGV);
        break;
    case DEATH_SIGKILL:
        raise(SIGKILL);
        break;
    case DEATH_EXIT:
        _exit(1);
    default:
        sigaction(SIGABRT, &standard, NULL);
    }
    abort();
}

/* The rule that decides now, or NULL; delays that have passed no longer count. */
static const struct rule *deciding(const struct scenario *scenario, struct passage *passage)
{
    for (unsigned i = 0; i < scenario->rule_count; i++) {
        const struct rule *rule = &scenario->rules[i];
        if (!matches(rule, passage) || !acts(rule, passage))
            continue;
        if (rule->action == ACT_DELAY && now_ms() - passage->started_ms >= (int64_t)rule->argument)
            continue;
        return rule;
    }
    return NULL;
}

/* Milliseconds to wait before the next look, or 0 when the call is decided. */
static int64_t look(struct passage *passage, nvmlReturn_t *result)
{
    const struct scenario *scenario = scenario_acquire();
    const struct rule *rule = scenario ? deciding(scenario, passage) : NULL;
    int64_t wait = 0;

    if (rule && rule->action == ACT_BLOCK)
        wait = -1;
    else if (rule && rule->action == ACT_DELAY)
        wait = passage->started_ms + (int64_t)rule->argument - now_ms() + 1;
    else if (rule && rule->action == ACT_KILL)
        die(rule->argument);
    else if (rule)
        *result = rule->argument;
    if (scenario)
        scenario_release(scenario);
    return wait;
}

nvmlReturn_t rules_gate(const char *name, int gpu)
{
    struct passage passage = {.name = name, .gpu = gpu, .started_ms = now_ms()};
    nvmlReturn_t result = NVML_SUCCESS;
    int64_t wait = look(&passage, &result);

    if (wait == 0)
        return result;
    watch_begin();
    while ((wait = look(&passage, &result)) != 0)
        watch_wait(wait);
    return result;
}

static bool parse_death(const char *text, unsigned *how)
{
    static const char *const names[] = {"abort", "segv", "exit", "sigkill"};

    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) {
            *how = i;
            return true;
        }
    return false;
}

static bool parse_action(struct rule *rule, const struct line *line, char **words, int count)
{
    const char *argument = count > 3 ? words[3] : "";
    uint64_t number = 0;

    if (strcmp(words[2], "block") == 0) {
        rule->action = ACT_BLOCK;
        return true;
    }
    if (strcmp(words[2], "return") == 0) {
        rule->action = ACT_RETURN;
        return parse_code(argument, &rule->argument) ||
               complain(line, "\"return\" takes an NVML code, like 15 or GPU_IS_LOST, not \"%s\"", argument);
    }
    if (strcmp(words[2], "delay") == 0) {
        rule->action = ACT_DELAY;
        if (!parse_unsigned(argument, &number) || number > 86400000)
            return complain(line, "\"delay\" takes milliseconds, at most a day, not \"%s\"", argument);
        rule->argument = (unsigned)number;
        return true;
    }
    if (strcmp(words[2], "kill") == 0) {
        rule->action = ACT_KILL;
        return parse_death(argument, &rule->argument) ||
               complain(line, "\"kill\" takes abort, segv, exit or sigkill, not \"%s\"", argument);
    }
    return complain(line, "\"%s\" is none of return, block, delay, kill", words[2]);
}

/* "id" only tells two otherwise equal rules apart; the rule's key is its whole text. */
static bool check_options(const struct line *line, char **words, int count)
{
    static const char *const names[] = {"except", "gpu", "scope", "from", "times", "id"};

    for (int i = strcmp(words[2], "block") == 0 ? 3 : 4; i < count; i++) {
        bool known = false;
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            known = known || find_option(&words[i], 1, names[n]);
        if (!known)
            return complain(line, "\"%s\" is none of gpu=, except=, from=, times=, scope=, id=", words[i]);
    }
    return true;
}

bool parse_rule(struct scenario *scenario, const struct line *line, char **words, int count)
{
    struct rule *rule = &scenario->rules[scenario->rule_count];
    const char *except = find_option(words, count, "except");
    const char *gpu = find_option(words, count, "gpu");
    const char *scope = find_option(words, count, "scope");

    if (count < 3)
        return complain(line, "\"call\" takes a function name and return, block, delay or kill");
    if (scenario->rule_count == MAX_RULES)
        return complain(line, "there are at most %d call lines", MAX_RULES);
    memset(rule, 0, sizeof *rule);
    rule->key = hash_text(line->text);
    rule->gpu = ALL_GPUS;
    rule->from = 1;
    rule->node_wide = scope && strcmp(scope, "node") == 0;
    if (strlen(words[1]) >= sizeof rule->pattern || (except && strlen(except) >= sizeof rule->except))
        return complain(line, "the function names are too long");
    strcpy(rule->pattern, words[1]);
    strcpy(rule->except, except ? except : "");
    if (gpu && !parse_gpu_index(scenario, gpu, &rule->gpu))
        return complain(line, "there is no GPU \"%s\"; the profile line above gives %u", gpu,
                        scenario->gpu_count);
    if (!option_unsigned(words, count, "from", &rule->from) || rule->from == 0 ||
        !option_unsigned(words, count, "times", &rule->times))
        return complain(line, "\"from\" and \"times\" take a number from 1 on");
    if (!check_options(line, words, count) || !parse_action(rule, line, words, count))
        return false;
    scenario->rule_count++;
    return true;
}

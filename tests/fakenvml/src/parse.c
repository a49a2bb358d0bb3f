/* The scenario's text, line by line; a bad line is named on stderr and skipped. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fakenvml.h"

enum { SHOWN_CHARACTERS = 120 };

bool complain(const struct line *line, const char *format, ...)
{
    char reason[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    fprintf(stderr, "fakenvml: %s line %u: \"%.*s\": %s; the line is skipped\n", line->path,
            line->number, SHOWN_CHARACTERS, line->text, reason);
    return false;
}

bool parse_unsigned(const char *text, uint64_t *value)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *value = strtoull(text, &end, 0);
    return errno == 0 && *end == '\0';
}

/* A GPU's index, or "*" for all of them. */
bool parse_gpu_index(const struct scenario *scenario, const char *text, int *gpu)
{
    uint64_t value;

    if (strcmp(text, "*") == 0) {
        *gpu = ALL_GPUS;
        return true;
    }
    if (!parse_unsigned(text, &value) || value >= scenario->gpu_count)
        return false;
    *gpu = (int)value;
    return true;
}

/* The text after "name=" among the words, or NULL. */
const char *find_option(char **words, int count, const char *name)
{
    size_t length = strlen(name);

    for (int i = 0; i < count; i++)
        if (strncmp(words[i], name, length) == 0 && words[i][length] == '=')
            return words[i] + length + 1;
    return NULL;
}

/* False only for an option that is there and is no number. */
bool option_unsigned(char **words, int count, const char *name, uint64_t *value)
{
    const char *text = find_option(words, count, name);

    return !text || parse_unsigned(text, value);
}

/* True for a line worth parsing: comments and blank lines are not. */
static bool split(char *text, char **words, int *count)
{
    char *rest = NULL;

    *count = 0;
    if (text[strspn(text, " \t\r")] == '#')
        return false;
    for (char *word = strtok_r(text, " \t\r", &rest); word && *count < MAX_WORDS;
         word = strtok_r(NULL, " \t\r", &rest))
        words[(*count)++] = word;
    return *count > 0;
}

void parse_scenario(struct scenario *scenario, const char *path, char *text)
{
    struct line line = {.path = path};
    char *words[MAX_WORDS], *rest = NULL, *original;
    int count;

    scenario->known_xid_max = 172;
    scenario->stale_code = NVML_ERROR_UNKNOWN;
    scenario->unknown_field_code = NVML_ERROR_NOT_SUPPORTED;
    for (char *next = text; next && *next; next = rest) {
        rest = strchr(next, '\n');
        if (rest)
            *rest++ = '\0';
        line.number++;
        original = strdup(next);
        line.text = original ? original : "";
        if (split(next, words, &count))
            parse_line(scenario, &line, words, count);
        free(original);
    }
    if (!scenario->library[0])
        strcpy(scenario->library, scenario->driver);
}

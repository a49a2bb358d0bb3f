/* One function per kind of scenario line. */
#include <stdio.h>
#include <string.h>

#include "fakenvml.h"

typedef bool line_parser(struct scenario *, const struct line *, char **, int);

static bool copy_text(char *target, const char *text, const struct line *line)
{
    if (strlen(text) >= TEXT_BYTES)
        return complain(line, "the text is longer than %d characters", TEXT_BYTES - 1);
    strcpy(target, text);
    return true;
}

static bool line_version(struct scenario *scenario, const struct line *line, char **words, int count)
{
    char *target = scenario->driver;

    if (count != 2)
        return complain(line, "\"%s\" takes one version, like 580.95.05", words[0]);
    if (strcmp(words[0], "library") == 0)
        target = scenario->library;
    else if (strcmp(words[0], "nvml") == 0)
        target = scenario->nvml;
    return copy_text(target, words[1], line);
}

static bool line_number(struct scenario *scenario, const struct line *line, char **words, int count)
{
    uint64_t value = 0;

    if (count != 2 || !parse_unsigned(words[1], &value))
        return complain(line, "\"%s\" takes one number", words[0]);
    if (strcmp(words[0], "cuda") == 0)
        scenario->cuda_version = (unsigned)value;
    else
        scenario->known_xid_max = (unsigned)value;
    return true;
}

static bool line_code(struct scenario *scenario, const struct line *line, char **words, int count)
{
    bool stale = strcmp(words[0], "stale_code") == 0;

    if (count != 2 || !parse_code(words[1], stale ? &scenario->stale_code : &scenario->unknown_field_code))
        return complain(line, "\"%s\" takes an NVML code, like 999 or GPU_IS_LOST", words[0]);
    return true;
}

static bool line_profile(struct scenario *scenario, const struct line *line, char **words, int count)
{
    uint64_t gpus = 8;

    if (count < 2 || count > 3 || (count == 3 && !parse_unsigned(words[2], &gpus)))
        return complain(line, "\"profile\" takes a name and, if not 8, a number of GPUs");
    if (gpus > MAX_GPUS)
        return complain(line, "a node has at most %d GPUs", MAX_GPUS);
    if (!apply_profile(scenario, words[1], (unsigned)gpus))
        return complain(line, "unknown profile \"%s\"; there are A100, H100, B200 and L4", words[1]);
    return true;
}

static bool line_gpu(struct scenario *scenario, const struct line *line, char **words, int count)
{
    const char *why = NULL;
    int gpu;

    if (count < 4)
        return complain(line, "\"gpu\" takes a GPU, a key and a value");
    if (!parse_gpu_index(scenario, words[1], &gpu))
        return complain(line, "there is no GPU \"%s\"; the profile line above gives %u", words[1],
                        scenario->gpu_count);
    for (int i = 0; i < (int)scenario->gpu_count; i++)
        if ((gpu == ALL_GPUS || gpu == i) &&
            !set_gpu_key(&scenario->gpus[i], words[2], words + 3, count - 3, &why))
            return complain(line, "%s", why);
    return true;
}

static bool line_nvlink(struct scenario *scenario, const struct line *line, char **words, int count)
{
    const char *why = NULL;
    uint64_t link = MAX_LINKS;
    int gpu;

    if (count < 5 || !parse_gpu_index(scenario, words[1], &gpu))
        return complain(line, "\"nvlink\" takes a GPU, a link, a key and a value");
    if (strcmp(words[2], "*") != 0 && (!parse_unsigned(words[2], &link) || link >= MAX_LINKS))
        return complain(line, "the link \"%s\" is not 0 to %d or *", words[2], MAX_LINKS - 1);
    for (int i = 0; i < (int)scenario->gpu_count; i++)
        for (unsigned l = 0; l < MAX_LINKS; l++)
            if ((gpu == ALL_GPUS || gpu == i) && (link == MAX_LINKS || link == l) &&
                !set_link_key(&scenario->gpus[i].links[l], words[3], words + 4, count - 4, &why))
                return complain(line, "%s", why);
    return true;
}

static bool line_process(struct scenario *scenario, const struct line *line, char **words, int count)
{
    struct process *process = &scenario->processes[scenario->process_count];
    uint64_t pid, bytes, gi = NO_INSTANCE, ci = NO_INSTANCE;
    int gpu;

    if (count < 4 || !parse_gpu_index(scenario, words[1], &gpu) || gpu == ALL_GPUS ||
        !parse_unsigned(words[2], &pid) || !parse_unsigned(words[3], &bytes) ||
        !option_unsigned(words, count, "gi", &gi) || !option_unsigned(words, count, "ci", &ci))
        return complain(line, "\"process\" takes GPU PID BYTES [gi=N] [ci=N]");
    if (scenario->process_count == MAX_PROCESSES)
        return complain(line, "there are at most %d processes", MAX_PROCESSES);
    process->gpu = gpu;
    process->info.pid = (unsigned)pid;
    process->info.used_bytes = bytes;
    process->info.gpu_instance = (unsigned)gi;
    process->info.compute_instance = (unsigned)ci;
    scenario->process_count++;
    return true;
}

static bool line_mig(struct scenario *scenario, const struct line *line, char **words, int count)
{
    uint64_t gi = 0, ci = 0, memory = 0, slices = 1;
    struct mig_device *mig;
    const char *uuid = find_option(words, count, "uuid");
    struct gpu *gpu;
    int index;

    if (count < 3 || !parse_gpu_index(scenario, words[1], &index) || index == ALL_GPUS || !uuid ||
        !option_unsigned(words, count, "gi", &gi) || !option_unsigned(words, count, "ci", &ci) ||
        !option_unsigned(words, count, "memory", &memory) ||
        !option_unsigned(words, count, "slices", &slices))
        return complain(line, "\"mig\" takes GPU PROFILE uuid=TEXT [gi=N] [ci=N] [memory=BYTES] [slices=N]");
    gpu = &scenario->gpus[index];
    if (gpu->mig_count == MAX_MIG)
        return complain(line, "a GPU has at most %d MIG devices", MAX_MIG);
    mig = &gpu->mig[gpu->mig_count];
    if (!copy_text(mig->profile, words[2], line) || !copy_text(mig->uuid, uuid, line))
        return false;
    mig->gpu_instance = (unsigned)gi;
    mig->compute_instance = (unsigned)ci;
    mig->memory_bytes = memory;
    mig->slices = (unsigned)slices;
    gpu->mig_count++;
    return true;
}

static bool line_field(struct scenario *scenario, const struct line *line, char **words, int count)
{
    struct field_override *field = &scenario->fields[scenario->field_count];
    uint64_t id;

    if (count != 5 || !parse_gpu_index(scenario, words[1], &field->gpu) || !parse_unsigned(words[2], &id))
        return complain(line, "\"field\" takes GPU ID return CODE, or GPU ID value NUMBER");
    if (scenario->field_count == MAX_FIELDS)
        return complain(line, "there are at most %d field lines", MAX_FIELDS);
    field->id = (uint32_t)id;
    field->has_value = strcmp(words[3], "value") == 0;
    field->result = NVML_SUCCESS;
    if (field->has_value ? !parse_unsigned(words[4], &field->value)
                         : strcmp(words[3], "return") != 0 || !parse_code(words[4], &field->result))
        return complain(line, "\"%s %s\" is neither \"return CODE\" nor \"value NUMBER\"", words[3],
                        words[4]);
    scenario->field_count++;
    return true;
}

static bool line_missing(struct scenario *scenario, const struct line *line, char **words, int count)
{
    if (count != 2)
        return complain(line, "\"missing\" takes one function name");
    if (scenario->missing_count == MAX_MISSING)
        return complain(line, "there are at most %d missing functions", MAX_MISSING);
    return copy_text(scenario->missing[scenario->missing_count++], words[1], line);
}

static const struct {
    const char *word;
    line_parser *parse;
} kinds[] = {
    {"driver", line_version},  {"library", line_version},  {"nvml", line_version},
    {"cuda", line_number},     {"known_xid_max", line_number}, {"stale_code", line_code},
    {"profile", line_profile}, {"gpu", line_gpu},          {"nvlink", line_nvlink},
    {"process", line_process}, {"mig", line_mig},          {"field", line_field},
    {"event", parse_event},    {"system_event", parse_event}, {"call", parse_rule},
    {"missing", line_missing}, {"unknown_field_code", line_code},
};

bool parse_line(struct scenario *scenario, const struct line *line, char **words, int count)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(words[0], kinds[i].word) == 0)
            return kinds[i].parse(scenario, line, words, count);
    return complain(line, "unknown kind of line \"%s\"", words[0]);
}

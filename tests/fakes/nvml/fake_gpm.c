/*
 * The part of the stand-in that answers for GPM; included by fake_nvml.c.
 *
 * Metric M of device I is M + I + 0.5, in percent or MiB per second, of GPU instance
 * G of it 10 (G + 1) more. Further lines of the control file:
 *
 *   gpm I SUPPORTED          whether device I can be sampled, 1 otherwise
 *   gpmvalue I M VALUE       what metric M of device I is instead
 *   gpmcode I M CODE         metric M of device I fails with CODE
 *
 * Harsh where the manual leaves it open: samples are compared only with the one taken
 * right after them, of the same unit; a freed one is refused; there are 40 of them.
 */

enum { MAX_SAMPLES = 40, NO_INSTANCE = -1, GPM_VERSION = 1 };

typedef struct {
    int live, index, instance, division;
    long taken;
} gpm_sample;

typedef struct {
    unsigned version, supported;
} gpm_support;

typedef struct {
    unsigned metric;
    nvml_return result;
    double value;
    char *names[3];
} gpm_metric;

typedef struct {
    unsigned version, count;
    gpm_sample *sample1, *sample2;
    gpm_metric metrics[];
} gpm_request;

static gpm_sample gpm_samples[MAX_SAMPLES];
static long gpm_taken[MAX_DEVICES][MAX_DEVICES + 1];

nvml_return nvmlGpmQueryDeviceSupport(device *self, gpm_support *out)
{
    const char *path = getenv("FAKE_NVML_CONTROL");
    FILE *file;
    char line[128];
    int which, supported;

    ENTER(self->index);
    if (out->version != GPM_VERSION)
        return ARGUMENT_VERSION_MISMATCH;
    out->supported = 1;
    if (!(file = path ? fopen(path, "r") : NULL))
        return SUCCESS;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "gpm %d %d", &which, &supported) == 2 && which == self->index)
            out->supported = (unsigned)supported;
    fclose(file);
    return SUCCESS;
}

nvml_return nvmlGpmSampleAlloc(gpm_sample **out)
{
    ENTER(-1);
    for (int i = 0; i < MAX_SAMPLES; i++) {
        if (!gpm_samples[i].live) {
            memset(&gpm_samples[i], 0, sizeof gpm_samples[i]);
            gpm_samples[i].live = 1;
            *out = &gpm_samples[i];
            return SUCCESS;
        }
    }
    return INSUFFICIENT_RESOURCES;
}

nvml_return nvmlGpmSampleFree(gpm_sample *sample)
{
    ENTER(-1);
    if (!sample->live)
        return INVALID_ARGUMENT;
    sample->live = 0;
    return SUCCESS;
}

static nvml_return gpm_take(const device *self, int instance, gpm_sample *sample)
{
    int index = self->index;

    if (!sample->live || instance >= MAX_DEVICES)
        return INVALID_ARGUMENT;
    sample->index = index;
    sample->instance = instance;
    sample->division = instance == NO_INSTANCE ? 0 : divided(self);
    sample->taken = ++gpm_taken[index][instance + 1];
    return SUCCESS;
}

nvml_return nvmlGpmSampleGet(device *self, gpm_sample *sample)
{
    ENTER(self->index);
    return gpm_take(self, NO_INSTANCE, sample);
}

nvml_return nvmlGpmMigSampleGet(device *self, unsigned instance, gpm_sample *sample)
{
    ENTER(self->index);
    return gpm_take(self, (int)instance, sample);
}

static void gpm_answer(const gpm_sample *sample, gpm_metric *metric)
{
    const char *path = getenv("FAKE_NVML_CONTROL");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[128];
    int which, code;
    unsigned number;
    double value;

    metric->result = SUCCESS;
    metric->value = metric->metric + sample->index + 0.5;
    metric->value += 10 * (sample->instance + 1);
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "gpmvalue %d %u %lf", &which, &number, &value) == 3) {
            if (which == sample->index && number == metric->metric)
                metric->value = value;
        } else if (sscanf(line, "gpmcode %d %u %d", &which, &number, &code) == 3) {
            if (which == sample->index && number == metric->metric)
                metric->result = code;
        }
    }
    if (file)
        fclose(file);
}

nvml_return nvmlGpmMetricsGet(gpm_request *request)
{
    const gpm_sample *first = request->sample1, *second = request->sample2;

    ENTER(second->index);
    if (request->version != GPM_VERSION)
        return ARGUMENT_VERSION_MISMATCH;
    if (!first->live || !second->live || first->index != second->index
        || first->instance != second->instance
        || first->division != second->division || second->taken != first->taken + 1)
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < request->count; i++)
        gpm_answer(second, &request->metrics[i]);
    return SUCCESS;
}

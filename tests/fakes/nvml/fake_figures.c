/*
 * The part of the stand-in that knows figures; included by fake_nvml.c.
 *
 * Models differ in what they support, as NVIDIA's do. Figures that rise with the
 * number of the device tell one from another.
 */

enum { H100 = 1, H200 = 2, B200 = 4, A100 = 8, T4 = 16, V100 = 32 };
enum { HOPPER = H100 | H200, GPM_ERA = HOPPER | B200, AMPERE = GPM_ERA | A100 };
enum { EVERY = AMPERE | T4 | V100, LINKED = EVERY & ~T4 };
enum { DOUBLE, UINT, ULONG, ULONGLONG, SIGNED_LONGLONG, SIGNED_INT, USHORT };
enum { ALL_LINKS = -1 };

typedef struct {
    int bit;
    const char *key, *name, *driver, *vbios;
    int cuda, gibibytes, generation, most_generation, width, fabric;
    unsigned power_limit; /* mW */
    unsigned newest_field;
} profile;

static const profile profiles[] = {
    {H100, "h100", "NVIDIA H100 80GB HBM3", "580.65.06", "96.00.74.00.01",
     13000, 80, 5, 5, 16, 3, 700000, 300},
    {H200, "h200", "NVIDIA H200", "580.65.06", "96.00.99.00.01",
     13000, 141, 5, 5, 16, 3, 700000, 300},
    {B200, "b200", "NVIDIA B200", "580.65.06", "97.00.4C.00.01",
     13000, 180, 6, 6, 16, 3, 1000000, 300},
    {A100, "a100", "NVIDIA A100-SXM4-40GB", "550.90.07", "92.00.45.00.01",
     12040, 40, 4, 4, 16, -1, 400000, 260},
    {T4, "t4", "Tesla T4", "535.183.01", "90.04.96.00.01",
     12020, 15, 1, 3, 8, 0, 70000, 196},
    {V100, "v100", "Tesla V100-SXM2-16GB", "450.80.02", "88.00.4F.00.01",
     11000, 16, 3, 3, 16, -1, 300000, 160},
};

static const profile *model(void)
{
    const char *wanted = getenv("FAKE_NVML_PROFILE");
    for (unsigned i = 0; wanted && i < sizeof profiles / sizeof *profiles; i++)
        if (!strcmp(profiles[i].key, wanted))
            return &profiles[i];
    return &profiles[0];
}

#define ENTER_ON(index, models)          \
    do {                                 \
        ENTER(index);                    \
        if (!(model()->bit & (models)))  \
            return NOT_SUPPORTED;        \
    } while (0)

/*
 * "mig I MODE" divides device I, or makes it whole, which needs no reset on Hopper. A
 * mode above 1 is another division: the same instances, made anew.
 */
static int divided(const device *self)
{
    long long mode = model()->bit == A100;
    ordered_value("mig", self->index, -1, &mode);
    return (int)mode;
}

/* Divided into MIG devices, the whole has no load. */
#define ENTER_WHOLE(self)                \
    do {                                 \
        ENTER((self)->index);            \
        if (divided(self))               \
            return NOT_SUPPORTED;        \
    } while (0)

/* --- Who it is ------------------------------------------------------------- */

typedef struct {
    const char *profile;
    unsigned instance, multiprocessors, gibibytes;
} part;

/* The second place is free: after a part was destroyed, its place stays a hole. */
static const part parts[MAX_PARTS] = {
    {"3g.20gb", 1, 42, 20}, {NULL, 0, 0, 0}, {"1g.5gb", 7, 14, 5}, {"1g.5gb", 8, 14, 5},
};

nvml_return nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    ENTER(-1);
    return put(out, size, model()->driver);
}

nvml_return nvmlSystemGetCudaDriverVersion(int *out)
{
    ENTER(-1);
    *out = model()->cuda;
    return SUCCESS;
}

nvml_return nvmlDeviceGetName(device *self, char *out, unsigned size)
{
    char name[96];
    ENTER(self->index);
    if (!self->part)
        return put(out, size, model()->name);
    snprintf(name, sizeof name, "%s MIG %s", model()->name,
             parts[self->part - 1].profile);
    return put(out, size, name);
}

nvml_return nvmlDeviceGetUUID(device *self, char *out, unsigned size)
{
    char uuid[64];
    ENTER(self->index);
    if (self->part)
        snprintf(uuid, sizeof uuid, "MIG-7a3e5c10-1a2b-3c4d-5e6f-%06d%06d", self->index,
                 1000 * (divided(self) - 1) + self->part);
    else
        snprintf(uuid, sizeof uuid, "GPU-5f0c9d2e-1a2b-3c4d-5e6f-%012d", self->index);
    return put(out, size, uuid);
}

nvml_return nvmlDeviceGetPciInfo_v3(device *self, pci_info *out)
{
    ENTER(self->index);
    memset(out, 0, sizeof *out);
    out->bus = 0x1A + self->index;
    snprintf(out->legacy_bus_id, sizeof out->legacy_bus_id, "0000:%02X:00.0", out->bus);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    return SUCCESS;
}

nvml_return nvmlDeviceGetVbiosVersion(device *self, char *out, unsigned size)
{
    ENTER(self->index);
    return put(out, size, model()->vbios);
}

/* --- Load, memory, clocks --------------------------------------------------- */

nvml_return nvmlDeviceGetUtilizationRates(device *self, utilization *out)
{
    long long percent = 37;
    ENTER_WHOLE(self);
    ordered_value("util", self->index, -1, &percent);
    out->gpu = (unsigned)percent;
    out->memory = 11;
    return SUCCESS;
}

static nvml_return engine(unsigned *percent, unsigned *period, unsigned value)
{
    *percent = value;
    *period = 167000;
    return SUCCESS;
}

nvml_return nvmlDeviceGetEncoderUtilization(device *self, unsigned *out, unsigned *us)
{
    ENTER_WHOLE(self);
    return engine(out, us, 0);
}

nvml_return nvmlDeviceGetDecoderUtilization(device *self, unsigned *out, unsigned *us)
{
    ENTER_WHOLE(self);
    return engine(out, us, 7);
}

#ifndef FAKE_NVML_OLD
nvml_return nvmlDeviceGetJpgUtilization(device *self, unsigned *out, unsigned *us)
{
    ENTER_ON(self->index, GPM_ERA);
    return engine(out, us, 3);
}

nvml_return nvmlDeviceGetOfaUtilization(device *self, unsigned *out, unsigned *us)
{
    ENTER_ON(self->index, GPM_ERA);
    return engine(out, us, 1);
}
#endif

typedef struct {
    unsigned long long total, free, used;
} memory_v1;

/* Version 1 counts what is reserved as used. */
nvml_return nvmlDeviceGetMemoryInfo(device *self, memory_v1 *out)
{
    ENTER(self->index);
    if (self->part) {
        out->total = (unsigned long long)parts[self->part - 1].gibibytes << 30;
        out->used = (1ULL << 30) + (unsigned)self->part;
    } else {
        out->total = (unsigned long long)model()->gibibytes << 30;
        out->used = (3ULL << 30) + (512ULL << 20);
    }
    out->free = out->total - out->used;
    return SUCCESS;
}

#ifndef FAKE_NVML_OLD
nvml_return nvmlDeviceGetMemoryInfo_v2(device *self, memory_v2 *out)
{
    ENTER(self->index);
    if (out->version != MEMORY_INFO_V2)
        return ARGUMENT_VERSION_MISMATCH;
    out->total = (unsigned long long)model()->gibibytes << 30;
    out->reserved = 512ULL << 20;
    long long ordered = 3LL << 30;
    ordered_value("used", self->index, -1, &ordered);
    out->used = (unsigned long long)ordered;
    out->free = out->total - out->reserved - (3ULL << 30);
    return SUCCESS;
}
#endif

typedef struct {
    unsigned long long total, free, used;
} bar1_memory;

nvml_return nvmlDeviceGetBAR1MemoryInfo(device *self, bar1_memory *out)
{
    ENTER(self->index);
    out->total = model()->bit & T4 ? 256ULL << 20 : 128ULL << 30;
    out->used = 2ULL << 20;
    out->free = out->total - out->used;
    return SUCCESS;
}

nvml_return nvmlDeviceGetClockInfo(device *self, int clock, unsigned *megahertz)
{
    static const unsigned clocks[] = {1980, 1965, 2619, 1545};
    ENTER(self->index);
    if (clock < 0 || clock > 3)
        return INVALID_ARGUMENT;
    *megahertz = clocks[clock] + (unsigned)self->index;
    return SUCCESS;
}

static nvml_return clock_events(device *self, unsigned long long *mask)
{
    long long ordered = 4; /* software power cap */
    ordered_value("clocks", self->index, -1, &ordered);
    *mask = (unsigned long long)ordered;
    return SUCCESS;
}

#ifndef FAKE_NVML_OLD
nvml_return nvmlDeviceGetCurrentClocksEventReasons(device *self, unsigned long long *out)
{
    ENTER(self->index);
    return clock_events(self, out);
}
#endif

nvml_return nvmlDeviceGetCurrentClocksThrottleReasons(device *self,
                                                      unsigned long long *out)
{
    ENTER(self->index);
    return clock_events(self, out);
}

nvml_return nvmlDeviceGetPerformanceState(device *self, int *out)
{
    ENTER(self->index);
    *out = model()->bit & V100 ? 32 : model()->bit & T4 ? 8 : 0; /* 32: unknown */
    return SUCCESS;
}

nvml_return nvmlDeviceGetPersistenceMode(device *self, int *out)
{
    ENTER(self->index);
    *out = 1;
    return SUCCESS;
}

typedef struct {
    unsigned code, state;
    char info[128], product[128];
    unsigned enabled, year;
    unsigned short month, day, hour, minute, second;
    unsigned char status;
} license;

typedef struct {
    int supported;
    unsigned count;
    license features[3];
} licenses;

/* "license I STATE" makes a virtual GPU of device I. */
nvml_return nvmlDeviceGetGridLicensableFeatures_v4(device *self, licenses *out)
{
    long long state;

    ENTER(self->index);
    memset(out, 0, sizeof *out);
    if (!ordered_value("license", self->index, -1, &state))
        return SUCCESS;
    out->supported = 1;
    out->count = 2;
    out->features[0].code = 2; /* a workstation's, which is not asked for */
    out->features[1].code = 1;
    out->features[1].state = (unsigned)state;
    return SUCCESS;
}

/* --- Heat and power ---------------------------------------------------------- */

nvml_return nvmlDeviceGetTemperature(device *self, int sensor, unsigned *celsius)
{
    ENTER_ON(self->index, EVERY & ~B200);
    if (sensor != 0)
        return INVALID_ARGUMENT;
    long long ordered = 40 + self->index;
    ordered_value("heat", self->index, -1, &ordered);
    *celsius = (unsigned)ordered;
    return SUCCESS;
}

#ifndef FAKE_NVML_OLD
typedef struct {
    unsigned version;
    int sensor, celsius;
} temperature_v1;

nvml_return nvmlDeviceGetTemperatureV(device *self, temperature_v1 *out)
{
    ENTER(self->index);
    if (out->version != 0x100000C)
        return ARGUMENT_VERSION_MISMATCH;
    out->celsius = 40 + self->index;
    return SUCCESS;
}

typedef struct {
    unsigned version;
    int celsius;
} margin_v1;

nvml_return nvmlDeviceGetMarginTemperature(device *self, margin_v1 *out)
{
    ENTER_ON(self->index, GPM_ERA);
    if (out->version != 0x1000008)
        return ARGUMENT_VERSION_MISMATCH;
    out->celsius = 45 - self->index;
    return SUCCESS;
}
#endif

nvml_return nvmlDeviceGetPowerUsage(device *self, unsigned *milliwatts)
{
    long long ordered = 123500 + self->index;
    ENTER(self->index);
    ordered_value("power", self->index, -1, &ordered);
    *milliwatts = (unsigned)ordered;
    return SUCCESS;
}

nvml_return nvmlDeviceGetEnforcedPowerLimit(device *self, unsigned *milliwatts)
{
    ENTER(self->index);
    *milliwatts = model()->power_limit;
    return SUCCESS;
}

nvml_return nvmlDeviceGetTotalEnergyConsumption(device *self, unsigned long long *out)
{
    ENTER(self->index);
    *out = 1234567000ULL + self->index; /* millijoules */
    return SUCCESS;
}

/* --- Links -------------------------------------------------------------------- */

nvml_return nvmlDeviceGetCurrPcieLinkGeneration(device *self, unsigned *out)
{
    ENTER(self->index);
    *out = (unsigned)model()->generation;
    return SUCCESS;
}

nvml_return nvmlDeviceGetMaxPcieLinkGeneration(device *self, unsigned *out)
{
    ENTER(self->index);
    *out = (unsigned)model()->most_generation;
    return SUCCESS;
}

nvml_return nvmlDeviceGetCurrPcieLinkWidth(device *self, unsigned *out)
{
    ENTER(self->index);
    *out = (unsigned)model()->width;
    return SUCCESS;
}

nvml_return nvmlDeviceGetMaxPcieLinkWidth(device *self, unsigned *out)
{
    ENTER(self->index);
    *out = 16;
    return SUCCESS;
}

#ifndef FAKE_NVML_OLD
typedef struct {
    unsigned version;
    unsigned char cluster[16];
    nvml_return status;
    unsigned clique;
    unsigned char state;
    unsigned health;
} fabric_v2;

nvml_return nvmlDeviceGetGpuFabricInfoV(device *self, fabric_v2 *out)
{
    long long status = SUCCESS;

    ENTER(self->index);
    if (out->version != 0x02000024)
        return ARGUMENT_VERSION_MISMATCH;
    if (model()->fabric < 0)
        return NOT_SUPPORTED;
    out->state = (unsigned char)model()->fabric;
    ordered_value("fabric", self->index, -1, &status);
    out->status = (nvml_return)status;
    out->clique = 1;
    return SUCCESS;
}

/* --- Errors of caches and registers --------------------------------------------- */

typedef struct {
    unsigned version;
    unsigned long long aggregate_parity, aggregate_secded, aggregate_corrected;
    unsigned long long volatile_parity, volatile_secded, volatile_corrected;
    unsigned long long buckets[5];
    unsigned exceeded;
} sram_v1;

nvml_return nvmlDeviceGetSramEccErrorStatus(device *self, sram_v1 *out)
{
    ENTER_ON(self->index, GPM_ERA);
    if (out->version != 0x1000068)
        return ARGUMENT_VERSION_MISMATCH;
    out->volatile_corrected = 8;
    out->volatile_parity = 1;
    out->volatile_secded = 2;
    out->aggregate_corrected = 90;
    out->aggregate_parity = 10;
    out->aggregate_secded = 20;
    out->exceeded = 0;
    return SUCCESS;
}
#endif

/* --- Numbered figures ------------------------------------------------------------ */

typedef struct {
    unsigned number;
    int models, type;
    unsigned long long value;
} field_row;

static const field_row fields[] = {
    {82, AMPERE, DOUBLE, 55}, /* wrongly "double", as some drivers say */
    {82, V100, UINT, 0},      /* nonsense for no sensor */
    {186, AMPERE, UINT, 131250},
    {185, AMPERE, UINT, 123500},
    {3, LINKED, ULONGLONG, 12},
    {4, LINKED, ULONGLONG, 0},
    {5, LINKED, ULONGLONG, 340},
    {6, LINKED, ULONGLONG, 1},
    {29, T4 | V100, ULONGLONG, 4},
    {30, T4 | V100, ULONGLONG, 1},
    {31, T4 | V100, UINT, 0},
    {38, LINKED, ULONGLONG, 21},
    {45, LINKED, ULONGLONG, 22},
    {52, LINKED, ULONGLONG, 23},
    {59, LINKED, ULONGLONG, 24},
    {74, EVERY, ULONGLONG, 81234567890},
    {75, EVERY, ULONGLONG, 2500000000},
    {76, EVERY, ULONGLONG, 0},
    {77, EVERY, ULONGLONG, 0},
    {78, EVERY, ULONGLONG, 1000},
    {79, EVERY, ULONGLONG, 0},
    {94, EVERY, UINT, 3},
    {138, LINKED & ~B200, ULONGLONG, 5000000000}, /* KiB */
    {139, LINKED & ~B200, ULONGLONG, 6000000000},
    {142, AMPERE, UINT, 2},
    {143, AMPERE, UINT, 1},
    {144, AMPERE, UINT, 0},
    {145, AMPERE, UINT, 0},
    {160, AMPERE, ULONGLONG, 25},
    {173, GPM_ERA, UINT, 5},
    {179, GPM_ERA, UINT, 1},
    {180, GPM_ERA, UINT, 0},
    {197, AMPERE, ULONGLONG, 9000000000000},
    {198, AMPERE, ULONGLONG, 8000000000000},
    /* The H200 tells them both ways. */
    {202, H200 | B200, ULONGLONG, 7000000000000},
    {204, H200 | B200, ULONGLONG, 7500000000000},
    {206, B200, ULONGLONG, 31},
    {207, B200, ULONGLONG, 32},
    {208, B200, ULONGLONG, 33},
    {209, B200, ULONGLONG, 34},
    {211, B200, ULONGLONG, 35},
    {212, B200, ULONGLONG, 36},
    {214, B200, ULONGLONG, 37},
    {219, B200, ULONGLONG, 38},
    {221, B200, ULONGLONG, 0xFFFFFFFFFFFFFFFF}, /* has none to tell */
    {230, GPM_ERA, UINT, 0},
    {269, GPM_ERA, ULONGLONG, 1500000000},
    {270, GPM_ERA, ULONGLONG, 250000000},
    {271, GPM_ERA, ULONGLONG, 0},
};

static int of_all_links(unsigned number)
{
    return number == 138 || number == 139 || (number >= 202 && number <= 221);
}

static void fill(field_value *out, int type, unsigned long long value)
{
    out->result = SUCCESS;
    out->value_type = type;
    out->value.u64 = 0;
    if (type == ULONGLONG)
        out->value.u64 = value;
    else
        out->value.u32 = (unsigned)value;
}

static void answer(const device *self, field_value *out)
{
    long long ordered;

    out->result = out->field > model()->newest_field ? INVALID_ARGUMENT : NOT_SUPPORTED;
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].number != out->field || !(fields[i].models & model()->bit))
            continue;
        if (of_all_links(out->field) && (int)out->scope != ALL_LINKS) {
            out->result = INVALID_ARGUMENT;
            return;
        }
        unsigned long long value = fields[i].value;
        if (value && ~value)
            value += (unsigned)self->index;
        if (ordered_value("field", self->index, (long)out->field, &ordered))
            value = (unsigned long long)ordered;
        fill(out, fields[i].type, value);
    }
    if (ordered_value("fieldcode", self->index, (long)out->field, &ordered))
        out->result = (nvml_return)ordered;
}

nvml_return nvmlDeviceGetFieldValues(device *self, int count, field_value *values)
{
    const char *path = getenv("FAKE_NVML_FIELDS");
    FILE *file = path ? fopen(path, "a") : NULL;

    ENTER(self->index);
    for (int i = 0; i < count; i++) {
        if (file)
            fprintf(file, "%u %d\n", values[i].field, self->index);
        answer(self, &values[i]);
    }
    if (file)
        fclose(file);
    return SUCCESS;
}

/* --- Parts of a GPU, and who uses it ------------------------------------------------ */

#ifndef FAKE_NVML_OLD
static device part_devices[MAX_DEVICES][MAX_PARTS];

nvml_return nvmlDeviceGetMigMode(device *self, unsigned *current, unsigned *pending)
{
    ENTER_ON(self->index, AMPERE);
    *current = *pending = divided(self) > 0;
    return SUCCESS;
}

nvml_return nvmlDeviceGetMaxMigDeviceCount(device *self, unsigned *count)
{
    ENTER(self->index);
    *count = MAX_PARTS;
    return SUCCESS;
}

nvml_return nvmlDeviceGetMigDeviceHandleByIndex(device *self, unsigned index,
                                                device **out)
{
    ENTER(self->index);
    if (index >= MAX_PARTS)
        return INVALID_ARGUMENT;
    if (!divided(self) || !parts[index].profile)
        return NOT_FOUND;
    *out = &part_devices[self->index][index];
    (*out)->index = self->index;
    (*out)->part = (int)index + 1;
    return SUCCESS;
}

nvml_return nvmlDeviceGetGpuInstanceId(device *self, unsigned *out)
{
    ENTER(self->index);
    if (!self->part)
        return NOT_SUPPORTED;
    *out = parts[self->part - 1].instance;
    return SUCCESS;
}

nvml_return nvmlDeviceGetComputeInstanceId(device *self, unsigned *out)
{
    ENTER(self->index);
    if (!self->part)
        return NOT_SUPPORTED;
    *out = 0;
    return SUCCESS;
}

typedef struct {
    unsigned multiprocessors, engines[5], slices[2];
    unsigned long long megabytes;
} attributes;

nvml_return nvmlDeviceGetAttributes_v2(device *self, attributes *out)
{
    ENTER(self->index);
    if (!self->part)
        return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->multiprocessors = parts[self->part - 1].multiprocessors;
    return SUCCESS;
}

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} process_v3;

nvml_return nvmlDeviceGetComputeRunningProcesses_v3(device *self, unsigned *count,
                                                    process_v3 *out)
{
    const char *path = getenv("FAKE_NVML_CONTROL");
    FILE *file;
    char line[128];
    int which;
    unsigned pid, found = 0, room = *count;
    long long bytes;

    ENTER(self->index);
    file = path ? fopen(path, "r") : NULL;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "process %d %u %lld", &which, &pid, &bytes) != 3)
            continue;
        if (which != self->index)
            continue;
        if (out && found < room) {
            out[found].pid = pid;
            out[found].memory = (unsigned long long)bytes;
            out[found].gpu_instance = out[found].compute_instance = 0xFFFFFFFF;
        }
        found++;
    }
    if (file)
        fclose(file);
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}
#endif

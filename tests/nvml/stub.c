/* A stand-in for NVIDIA's libnvidia-ml.so.1: the entry points that dlsched uses, answered from a
 * scenario file, which is read anew at each call, so that a test changes the world at any time.
 *
 * It owns the C side alone: tests/nvml/scenario.py writes the file, whose path is in the variable
 * DLSCHED_NVML_SCENARIO. Fields are separated by tabs; -1 is a figure that is not supported:
 *
 *   driver   VERSION
 *   life     NUMBER                        of the driver: another one invalidates what was opened
 *   fail     FUNCTION|* CODE [UUID]        that call, or every one, returns this (for that device)
 *   hang     FUNCTION|* [UUID]             that call waits until the scenario says otherwise
 *   gpu      UUID NAME MINOR MEMORY USED BUSY-PERCENT COMPUTE-MODE NUMA-NODE MIG(0|1|-1)
 *   mig      GPU-UUID UUID NAME GPU-INSTANCE COMPUTE-INSTANCE MEMORY USED
 *   process  UUID PID MEMORY SM-PERCENT compute|graphics
 *
 * A symbol is left out by compiling with -Dsymbol=absent_symbol.
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default"))) int
#define MOST 128
#define TEXT 96
#define RESERVED (640ULL << 20) /* the driver's own memory, which the first version calls used */

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, UNKNOWN = 999
};

typedef unsigned long long u64;
typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } ProcessInfo;
typedef struct { unsigned pid; u64 stamp_us; unsigned sm, memory, encoder, decoder; } Sample;
typedef struct {
    char uuid[TEXT], parent[TEXT], name[TEXT];
    int is_mig, minor, busy, mode, numa, mig, gpu_instance, compute_instance;
    long long memory, used;
} Device;
typedef struct { char uuid[TEXT]; unsigned pid; long long memory; int sm, graphics; } Process;
typedef struct {
    char driver[TEXT];
    int life, failure, hangs;   /* of the call in question */
    int devices, processes;
    Device device[MOST];
    Process process[MOST];
} World;

/* What a caller holds: one device in one life of the driver. */
typedef struct { char uuid[TEXT]; int life; } Handle;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Handle handles[4 * MOST];
static int handle_count, initialised, opened_life;

static void copy(char *to, const char *from) { snprintf(to, TEXT, "%s", from ? from : ""); }

static long long number(const char *text) { return text ? strtoll(text, NULL, 10) : -1; }

static int concerns(const char *function, const char *uuid, char **field, int which) {
    size_t length = strcspn(field[1], "*"); /* "name*": each function that begins so */
    if (field[1][length] ? strncmp(field[1], function, length) : strcmp(field[1], function)) return 0;
    return !field[which] || !strcmp(field[which], uuid);
}

static int split(char *line, char **field, int most) {
    int count = 0;
    line[strcspn(line, "\n")] = 0;
    memset(field, 0, most * sizeof *field);
    while (line && count < most) field[count++] = strsep(&line, "\t");
    return count;
}

static void read_device(World *world, char **field) {
    Device *one = &world->device[world->devices++];
    memset(one, 0, sizeof *one);
    one->is_mig = !strcmp(field[0], "mig");
    if (one->is_mig) copy(one->parent, field[1]);
    copy(one->uuid, field[1 + one->is_mig]);
    copy(one->name, field[2 + one->is_mig]);
    if (one->is_mig) {
        one->gpu_instance = number(field[4]), one->compute_instance = number(field[5]);
        one->memory = number(field[6]), one->used = number(field[7]);
        one->minor = one->busy = one->numa = one->mig = -1;
        return;
    }
    one->minor = number(field[3]);
    one->memory = number(field[4]), one->used = number(field[5]);
    one->busy = number(field[6]), one->mode = number(field[7]);
    one->numa = number(field[8]), one->mig = number(field[9]);
}

static void read_world(World *world, const char *function, const char *uuid) {
    const char *path = getenv("DLSCHED_NVML_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[1024], *field[12];
    memset(world, 0, sizeof *world);
    if (!file) {
        world->failure = DRIVER_NOT_LOADED;
        return;
    }
    while (fgets(line, sizeof line, file)) {
        int count = split(line, field, 12);
        if (!strcmp(field[0], "driver")) copy(world->driver, field[1]);
        else if (!strcmp(field[0], "life")) world->life = number(field[1]);
        else if (!strcmp(field[0], "fail") && concerns(function, uuid, field, 3))
            world->failure = number(field[2]);
        else if (!strcmp(field[0], "hang") && concerns(function, uuid, field, 2))
            world->hangs = 1;
        else if (!strcmp(field[0], "gpu") && count >= 10 && world->devices < MOST)
            read_device(world, field);
        else if (!strcmp(field[0], "mig") && count >= 8 && world->devices < MOST)
            read_device(world, field);
        else if (!strcmp(field[0], "process") && count >= 6 && world->processes < MOST) {
            Process *one = &world->process[world->processes++];
            copy(one->uuid, field[1]);
            one->pid = number(field[2]), one->memory = number(field[3]);
            one->sm = number(field[4]), one->graphics = !strcmp(field[5], "graphics");
        }
    }
    fclose(file);
}

/* The world as this call finds it, waiting while it hangs; what it fails with, or SUCCESS. */
static int look(World *world, const char *function, const char *uuid) {
    struct timespec pause = {0, 5000000};
    for (read_world(world, function, uuid); world->hangs; read_world(world, function, uuid))
        nanosleep(&pause, NULL);
    return world->failure;
}

static int looked(World *world, const char *function) {
    int failure = look(world, function, "");
    if (failure) return failure;
    if (!initialised) return UNINITIALIZED;
    return world->life == opened_life ? SUCCESS : UNKNOWN;
}

static int find(World *world, const char *function, Handle *handle, Device **found) {
    int failure = look(world, function, handle ? handle->uuid : "");
    if (failure) return failure;
    if (!initialised) return UNINITIALIZED;
    if (world->life != opened_life) return UNKNOWN;
    if (!handle || handle->life != opened_life) return INVALID_ARGUMENT;
    for (int i = 0; i < world->devices; i++)
        if (!strcmp(world->device[i].uuid, handle->uuid)) {
            *found = &world->device[i];
            return SUCCESS;
        }
    return GPU_IS_LOST;
}

static int open_handle(const Device *device, Handle **handle) {
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < handle_count
           && (strcmp(handles[i].uuid, device->uuid) || handles[i].life != opened_life)) i++;
    if (i == handle_count && handle_count < 4 * MOST) {
        copy(handles[i].uuid, device->uuid);
        handles[handle_count++].life = opened_life;
    }
    pthread_mutex_unlock(&lock);
    *handle = i < 4 * MOST ? &handles[i] : NULL;
    return *handle ? SUCCESS : UNKNOWN;
}

/* ------------------------------------------------------------------------------- the system */

API nvmlInitWithFlags(unsigned flags) {
    World world;
    int failure = look(&world, __func__, "");
    if (failure) return (void)flags, failure;
    pthread_mutex_lock(&lock);
    if (!initialised++) opened_life = world.life;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

API nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    int was = initialised;
    if (was) initialised--;
    pthread_mutex_unlock(&lock);
    return was ? SUCCESS : UNINITIALIZED;
}

API nvmlSystemGetDriverVersion(char *version, unsigned length) {
    World world;
    int failure = looked(&world, __func__);
    if (!failure) snprintf(version, length, "%s", world.driver);
    return failure;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int code) {
    return code == UNKNOWN ? "Unknown Error" : "Some Error";
}

API nvmlDeviceGetCount_v2(unsigned *count) {
    World world;
    int failure = looked(&world, __func__);
    *count = 0;
    for (int i = 0; !failure && i < world.devices; i++) *count += !world.device[i].is_mig;
    return failure;
}

API nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle **handle) {
    World world;
    int failure = looked(&world, __func__);
    for (int i = 0; !failure && i < world.devices; i++)
        if (!world.device[i].is_mig && !index--) {
            /* One device alone can fail here: look again, with its name. */
            Device one = world.device[i];
            failure = look(&world, __func__, one.uuid);
            return failure ? failure : open_handle(&one, handle);
        }
    return failure ? failure : INVALID_ARGUMENT;
}

/* ------------------------------------------------------------------------------- one device */

#define OF_DEVICE                                          \
    World world;                                           \
    Device *one;                                           \
    int failure = find(&world, __func__, handle, &one);    \
    if (failure) return failure

API nvmlDeviceGetUUID(Handle *handle, char *uuid, unsigned length) {
    OF_DEVICE;
    snprintf(uuid, length, "%s", one->uuid);
    return SUCCESS;
}

API nvmlDeviceGetName(Handle *handle, char *name, unsigned length) {
    OF_DEVICE;
    snprintf(name, length, "%s", one->name);
    return SUCCESS;
}

API nvmlDeviceGetMinorNumber(Handle *handle, unsigned *minor) {
    OF_DEVICE;
    *minor = one->minor;
    return one->minor < 0 ? NOT_SUPPORTED : SUCCESS;
}

API nvmlDeviceGetMemoryInfo(Handle *handle, Memory *memory) {
    OF_DEVICE;
    memory->total = one->memory + RESERVED, memory->used = one->used + RESERVED;
    memory->free = one->memory - one->used;
    return one->memory < 0 || one->used < 0 ? NOT_SUPPORTED : SUCCESS;
}

API nvmlDeviceGetMemoryInfo_v2(Handle *handle, MemoryV2 *memory) {
    OF_DEVICE;
    memory->total = one->memory + RESERVED, memory->reserved = RESERVED;
    memory->used = one->used, memory->free = one->memory - one->used;
    return one->memory < 0 || one->used < 0 ? NOT_SUPPORTED : SUCCESS;
}

API nvmlDeviceGetUtilizationRates(Handle *handle, Utilization *rates) {
    OF_DEVICE;
    rates->gpu = one->busy, rates->memory = 0;
    return one->busy < 0 || one->mig == 1 ? NOT_SUPPORTED : SUCCESS;
}

API nvmlDeviceGetComputeMode(Handle *handle, unsigned *mode) {
    OF_DEVICE;
    *mode = one->mode;
    return one->mode < 0 || one->is_mig ? NOT_SUPPORTED : SUCCESS;
}

API nvmlDeviceGetMemoryAffinity(Handle *handle, unsigned words, unsigned long *set, unsigned scope) {
    OF_DEVICE;
    if (one->numa < 0 || !words) return (void)scope, NOT_SUPPORTED;
    memset(set, 0, words * sizeof *set);
    set[0] = 1UL << one->numa;
    return SUCCESS;
}

API nvmlDeviceGetMigMode(Handle *handle, unsigned *current, unsigned *pending) {
    OF_DEVICE;
    *current = *pending = one->mig;
    return one->mig < 0 ? NOT_SUPPORTED : SUCCESS;
}

API nvmlDeviceGetMaxMigDeviceCount(Handle *handle, unsigned *count) {
    OF_DEVICE;
    *count = one->mig == 1 ? 7 : 0;
    return SUCCESS;
}

API nvmlDeviceGetMigDeviceHandleByIndex(Handle *handle, unsigned index, Handle **instance) {
    OF_DEVICE;
    for (int i = 0; i < world.devices; i++)
        if (!strcmp(world.device[i].parent, one->uuid) && !index--)
            return open_handle(&world.device[i], instance);
    return NOT_FOUND;
}

API nvmlDeviceGetGpuInstanceId(Handle *handle, unsigned *id) {
    OF_DEVICE;
    *id = one->gpu_instance;
    return one->is_mig ? SUCCESS : NOT_SUPPORTED;
}

API nvmlDeviceGetComputeInstanceId(Handle *handle, unsigned *id) {
    OF_DEVICE;
    *id = one->compute_instance;
    return one->is_mig ? SUCCESS : NOT_SUPPORTED;
}

/* ------------------------------------------------------------------------------- processes */

static int running(const char *function, Handle *handle, unsigned *count, ProcessInfo *infos,
                   int graphics) {
    World world;
    Device *one;
    int failure = find(&world, function, handle, &one);
    if (failure) return failure;
    unsigned room = *count;
    *count = 0;
    for (int i = 0; i < world.processes; i++) {
        Process *process = &world.process[i];
        if (strcmp(process->uuid, one->uuid) || process->graphics != graphics) continue;
        if (*count < room && infos) {
            ProcessInfo info = {process->pid, process->memory, -1, -1};
            infos[*count] = info;
        }
        ++*count;
    }
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

API nvmlDeviceGetComputeRunningProcesses_v3(Handle *handle, unsigned *count, ProcessInfo *infos) {
    return running(__func__, handle, count, infos, 0);
}

API nvmlDeviceGetGraphicsRunningProcesses_v3(Handle *handle, unsigned *count, ProcessInfo *infos) {
    return running(__func__, handle, count, infos, 1);
}

/* One sample for each process that computed, taken just now. */
API nvmlDeviceGetProcessUtilization(Handle *handle, Sample *samples, unsigned *count, u64 last_us) {
    OF_DEVICE;
    struct timespec now;
    unsigned room = *count;
    if (one->is_mig || one->mig == 1) return NOT_SUPPORTED;
    clock_gettime(CLOCK_REALTIME, &now);
    u64 now_us = now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
    *count = 0;
    for (int i = 0; i < world.processes && now_us > last_us; i++) {
        Process *process = &world.process[i];
        if (strcmp(process->uuid, one->uuid) || process->sm < 0) continue;
        if (*count < room && samples) {
            Sample sample = {process->pid, now_us, process->sm, 0, 0, 0};
            samples[*count] = sample;
        }
        ++*count;
    }
    if (!*count) return NOT_FOUND;
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

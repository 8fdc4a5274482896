/* As much of libcuda.so.1 as suspending a process calls: its states, and a failure of choice.
 * TRUTH_FAILS names a function that returns 801. */

#include <stdlib.h>
#include <string.h>

enum { RUNNING, LOCKED, CHECKPOINTED };

static int state, last_pid;

static int go(const char *function, int pid, int from, int to) {
    const char *fails = getenv("TRUTH_FAILS");
    if (fails && !strcmp(fails, function)) return 801;
    if (pid <= 0 || (from != RUNNING && pid != last_pid) || state != from) return 401;
    last_pid = pid;
    state = to;
    return 0;
}

int cuInit(unsigned flags) { return state = RUNNING, flags ? 1 : 0; }

int cuGetErrorName(int code, const char **name) {
    *name = code == 0 ? "CUDA_SUCCESS" : code == 401 ? "CUDA_ERROR_ILLEGAL_STATE" : NULL;
    return *name ? 0 : 1;
}

/* Its time limit and its reserved fields. */
typedef struct { unsigned timeout_ms, reserved0; unsigned long long reserved1[7]; } LockArgs;

int cuCheckpointProcessLock(int pid, LockArgs *args) {
    LockArgs zero = {args ? args->timeout_ms : 0, 0, {0}};
    if (!args || !args->timeout_ms || memcmp(args, &zero, sizeof zero)) return 1;
    return go(__func__, pid, RUNNING, LOCKED);
}

int cuCheckpointProcessCheckpoint(int pid, void *args) {
    return args ? 1 : go(__func__, pid, LOCKED, CHECKPOINTED);
}

int cuCheckpointProcessRestore(int pid, void *args) {
    return args ? 1 : go(__func__, pid, CHECKPOINTED, LOCKED);
}

int cuCheckpointProcessUnlock(int pid, void *args) {
    return args ? 1 : go(__func__, pid, LOCKED, RUNNING);
}

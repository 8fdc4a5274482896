/* Parallel regions of libgomp: pool COUNTS. Counts as pool.py does. */
#include <fcntl.h>
#include <omp.h>
#include <stdint.h>
#include <sys/mman.h>

/* Half a millisecond of CPU time a region, as a layer of a small network takes. */
#define PARTS 8
#define ROUNDS 50000

static double work(double x)
{
    for (long i = 0; i < ROUNDS; i++)
        x = x * 1.0000001 + 1e-9;
    return x;
}

int main(int count, char **words)
{
    double sum = 0;
    int file = count > 1 ? open(words[1], O_RDWR) : -1;
    volatile int64_t *counts = mmap(0, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

    if (counts == MAP_FAILED)
        return 1;
    counts[1] = omp_get_max_threads();
    while (sum != 1.0) { /* so that it is computed */
#pragma omp parallel for schedule(static) reduction(+ : sum)
        for (int part = 0; part < PARTS; part++)
            sum += work(part);
        counts[0]++;
    }
}
